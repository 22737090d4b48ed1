"""The evidence for an OCI runtime: what starts it, the kernel that a worker sees, limits that a sandbox hides."""

from __future__ import annotations

from typing import Any

import pytest

from gputax.environments.environment import Described
from gputax.environments.inside import refuse_hidden_limit
from gputax.environments.kubernetes import class_reasons, pod_limit_reasons, runtime_class_of
from gputax.environments.runtime import (
    SeenRuntime,
    hides_limits,
    kernel_reasons,
    nano_cpus,
    program_reasons,
    told_reasons,
)
from gputax.errors import PreflightError, UsageError
from gputax.kubernetes.objects import Size
from gputax.plan.environment import EnvironmentName
from gputax.plan.options import EnvironmentOptions

HOST = "6.1.0-18-amd64"


def worker(kernel: str = HOST, sandbox: str | None = None, **allowance: Any) -> Described:
    host = {"kernel": kernel, "sandbox": sandbox, "kernel_banner": f"Linux version {kernel}"}
    return Described({"host": host, "cpu_allowance": {"affinity": [0, 1, 2, 3], "quota_cpus": None, **allowance}})


GVISOR = worker("4.19.0-gvisor", "gvisor")
GUEST = worker("6.12.36", "kata")


@pytest.mark.parametrize(
    ("runtime", "described"),
    [
        (SeenRuntime("runsc", "/usr/bin/runsc", "runsc version release-1", HOST), GVISOR),
        (SeenRuntime("gvisor", "runsc"), GVISOR),
        (SeenRuntime("", "runsc"), GVISOR),
        (SeenRuntime("kata-qemu", "kata", kernel=HOST), GUEST),
        (SeenRuntime("crun", "/usr/bin/crun", "crun version 1.8.1", HOST), worker()),
        (SeenRuntime("runc"), worker()),
        (SeenRuntime("fast", "anything", kernel=HOST), worker()),
    ],
)
def test_a_runtime_is_what_it_says(runtime: SeenRuntime, described: Described) -> None:
    assert [*program_reasons(runtime), *kernel_reasons(runtime, described)] == []


@pytest.mark.parametrize(
    ("runtime", "described", "reason"),
    [
        (SeenRuntime("runsc", kernel=HOST), worker(), "sees gVisor's kernel, but the worker sees 'Linux version 6.1"),
        (SeenRuntime("runsc", kernel=HOST), GUEST, "sees gVisor's kernel"),
        (SeenRuntime("runc", kernel=HOST), GVISOR, "sees the machine's own kernel"),
        (SeenRuntime("crun", kernel=HOST), worker("5.4.0"), f"the machine's is {HOST}"),
        (SeenRuntime("kata", kernel=HOST), worker(), "sees a virtual machine's kernel"),
        (SeenRuntime("kata"), GUEST, "the release of the kernel below is not known"),
    ],
)
def test_another_kernel_than_the_runtimes_is_found_out(runtime: SeenRuntime, described: Described, reason: str) -> None:
    (only,) = kernel_reasons(runtime, described)
    assert reason in only


@pytest.mark.parametrize(
    ("runtime", "reason"),
    [
        (SeenRuntime("runsc", "/opt/runsc", "runc version 1.1.5"), "runsc is runc, not gVisor"),
        (SeenRuntime("gvisor", "runc"), "gvisor is runc, not gVisor: its handler or program is runc"),
        (SeenRuntime("kata", "runsc"), "kata is gVisor, not Kata"),
    ],
)
def test_another_program_behind_the_name_is_found_out(runtime: SeenRuntime, reason: str) -> None:
    (only,) = program_reasons(runtime)
    assert reason in only


def test_only_a_kernel_of_its_own_hides_limits() -> None:
    assert hides_limits(GVISOR)
    assert not hides_limits(worker())
    assert not hides_limits(worker("6.12.36", "kata", quota_cpus=2.0))


@pytest.mark.parametrize(
    ("told", "outside", "reason"),
    [
        (2.0, 2.0, ""),
        (2.0, 1.999, ""),
        (None, 2.0, "told nothing instead of 2"),
        (4.0, 2.0, "told 4 instead of 2"),
        (2.0, None, "from outside no CPU limit of the sandbox is seen, instead of 2"),
        (2.0, 4.0, "from outside the CPU limit is 4, not 2"),
    ],
)
def test_a_hidden_limit_is_told_and_seen_from_outside(told: float | None, outside: float | None, reason: str) -> None:
    found = told_reasons(worker(sandbox="gvisor", told_cpus=told), 2, outside)
    assert reason in "; ".join(found)
    assert bool(found) is bool(reason)


def pod(spec_cpu: str | None = "2", status_cpu: str | None = None, runtime: str | None = "gvisor") -> dict[str, Any]:
    def limits(cpu: str | None) -> dict[str, Any]:
        return {} if cpu is None else {"resources": {"limits": {"cpu": cpu}}}

    return {
        "spec": {"runtimeClassName": runtime, "containers": [limits(spec_cpu)]},
        "status": {"containerStatuses": [limits(status_cpu)]},
    }


@pytest.mark.parametrize(
    ("live", "size", "reason"),
    [
        (pod(), Size(2), ""),
        (pod("500m"), Size(1, millicpus=500), ""),
        (pod("2", "1"), Size(2), "from outside the CPU limit is 1"),
        (pod(None), Size(2), "no CPU limit of the sandbox is seen"),
    ],
)
def test_a_pod_that_hides_its_limit_shows_it_in_its_status(live: dict[str, Any], size: Size, reason: str) -> None:
    cpus = size.millicpus / 1000 or size.cpus
    found = pod_limit_reasons(live, worker(sandbox="gvisor", told_cpus=cpus), size)
    assert reason in "; ".join(found)
    assert bool(found) is bool(reason)


def test_a_pod_whose_limit_is_visible_is_judged_by_it() -> None:
    (reason,) = pod_limit_reasons(pod(), worker(told_cpus=2.0), Size(2))
    assert "may use 4 CPUs" in reason


def test_a_webhook_that_changes_the_class_is_found_out() -> None:
    assert class_reasons(pod(), SeenRuntime("gvisor")) == []
    assert class_reasons(pod(runtime=None), SeenRuntime("gvisor")) == ["the pod's RuntimeClass is None, not gvisor"]


def test_the_class_is_named_once() -> None:
    name = EnvironmentName.parse("k8s:gvisor")
    assert runtime_class_of(name, EnvironmentOptions()) == "gvisor"
    assert runtime_class_of(name, EnvironmentOptions(runtime_class="gvisor")) == "gvisor"
    assert runtime_class_of(EnvironmentName.parse("k8s+xen"), EnvironmentOptions()) == "xen-gpu"
    with pytest.raises(UsageError, match="two RuntimeClasses"):
        runtime_class_of(name, EnvironmentOptions(runtime_class="kata"))


@pytest.mark.parametrize(("sandbox", "quota", "told"), [(None, None, None), ("gvisor", 2.0, None), ("gvisor", None, 2)])
def test_inside_a_pod_the_limit_is_seen_or_told(sandbox: str | None, quota: float | None, told: float | None) -> None:
    refuse_hidden_limit(sandbox, quota, told)


def test_inside_a_pod_a_hidden_limit_is_not_guessed() -> None:
    with pytest.raises(PreflightError, match="hides this pod's CPU limit") as raised:
        refuse_hidden_limit("gvisor", None, None)
    assert "GPUTAX_LIMIT_CPUS" in raised.value.next_step


@pytest.mark.parametrize(
    ("config", "cpus"),
    [({"NanoCpus": 2_000_000_000}, 2.0), ({"NanoCpus": 0, "CpuQuota": 50_000, "CpuPeriod": 100_000}, 0.5), ({}, None)],
)
def test_an_engine_says_what_limit_it_set(config: dict[str, int], cpus: float | None) -> None:
    assert nano_cpus(config) == cpus
