"""A proxy pod of our own, against an API server in memory: its device and its waiting are as the user's are here."""

from __future__ import annotations

from typing import Any

import pytest

from gputax.environments.image import driver_variables
from gputax.errors import UsageError
from gputax.places import Places, environment_named
from gputax.plan.driver import DriverChoice
from gputax.plan.options import EnvironmentOptions
from tests.standins.kube_api import KubeApi, start_without_worker

SOFTWARE = DriverChoice("software")


@pytest.fixture(autouse=True)
def a_node_and_a_slow_device(api: KubeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    api.add_node("node-1", 0)
    monkeypatch.setenv("GPUTAX_SOFT_KERNEL_US", "125")


def variables_of_proxy(api: KubeApi) -> dict[str, str]:
    """Start a worker behind a proxy of its own and return what the proxy's container is given."""
    with Places(EnvironmentOptions(image="gputax:1", ready_timeout_s=10)) as places:
        start_without_worker(environment_named("k8s+proxy", SOFTWARE, places))
        pods: list[dict[str, Any]] = [each for each in api.objects.values() if each["kind"] == "Pod"]
        (proxy,) = [each for each in pods if "proxy" in each["metadata"]["name"]]
        return {each["name"]: each["value"] for each in proxy["spec"]["containers"][0]["env"] if "value" in each}


def test_its_device_takes_the_time_that_ours_takes(api: KubeApi) -> None:
    given = variables_of_proxy(api)
    assert given["GPUTAX_SOFT_KERNEL_US"] == "125"
    assert given["GPUTAX_PROXY_SPIN"] == "auto"


def test_it_waits_as_the_user_says(api: KubeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTAX_PROXY_SPIN", "always")
    assert variables_of_proxy(api)["GPUTAX_PROXY_SPIN"] == "always"
    monkeypatch.setenv("GPUTAX_PROXY_SPIN", "allways")
    with pytest.raises(UsageError, match="unknown value of GPUTAX_PROXY_SPIN"):
        variables_of_proxy(api)


def test_a_software_device_in_a_container_is_as_fast_as_the_one_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTAX_SOFT_COPY_GBPS", "4.5")
    assert driver_variables(SOFTWARE, 0)["GPUTAX_SOFT_COPY_GBPS"] == "4.5"
    assert driver_variables(DriverChoice("cuda"), 1) == {}
