"""The client against Kubernetes 1.34: no group, no field and no status that came later is needed or sent."""

from __future__ import annotations

from typing import Any

import pytest

from gputax.doctor.cluster import inspect_cluster
from gputax.environments.environment import Described
from gputax.environments.kubernetes import Kubernetes
from gputax.errors import PreflightError
from gputax.kubernetes.client import KINDS, Cluster
from gputax.places import Places, environment_named
from gputax.plan.cells import Setup
from gputax.plan.options import EnvironmentOptions
from gputax.plan.techniques import TECHNIQUES
from gputax.sharing.dra.place import ClaimedShared
from tests.standins.claim_scheduler import ClaimScheduler
from tests.standins.kube_api import KubeApi, start_without_worker
from tests.standins.kubernetes_134 import NOT_YET_IN_STATUS, SERVED, VERSION, serve_134
from tests.standins.virtual_clock import VirtualClock

SETUP = Setup("micro:operation", engine="driver", device="software")
INFO = (
    "architecture", "bootID", "containerRuntimeVersion", "kubeProxyVersion", "kubeletVersion", "machineID",
    "operatingSystem", "osImage", "systemUUID",
)  # fmt: skip


@pytest.fixture(autouse=True)
def kubernetes_134(api: KubeApi) -> None:
    serve_134(api)
    api.add_node("node-1", 0)
    info = {**dict.fromkeys(INFO, ""), "kernelVersion": "6.1.0"}
    api.objects["/api/v1/nodes/node-1"]["status"]["nodeInfo"] = info


def test_every_kind_that_the_client_knows_is_served() -> None:
    assert set(KINDS.values()) <= set(SERVED)


def test_a_later_field_and_a_later_group_are_refused_by_the_stand_in(api: KubeApi) -> None:
    cluster = Cluster("", "gputax")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    with pytest.raises(PreflightError, match=r'unknown field "spec.schedulingGroup"'):
        cluster.create({**pod, "spec": {"containers": [], "schedulingGroup": {}}})
    api.serves = tuple(each for each in SERVED if each != "node.k8s.io/v1")
    with pytest.raises(PreflightError, match="cannot list RuntimeClasses: the server could not find"):
        cluster.list("RuntimeClass")
    cluster.close()


def test_a_pod_with_a_runtime_class_runs_and_is_proven_without_a_status_of_its_resources(api: KubeApi) -> None:
    api.objects["/apis/node.k8s.io/v1/runtimeclasses/gvisor"] = {
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "gvisor"}, "handler": "runsc",
    }  # fmt: skip
    with Places(EnvironmentOptions(image="gputax:1", ready_timeout_s=10, cpus=1)) as places:
        environment = environment_named("k8s:gvisor", places=places)
        assert isinstance(environment, Kubernetes)
        start_without_worker(environment)
        (name,) = api.named("Pod")
        status = api.objects[f"/api/v1/namespaces/gputax/pods/{name}"]["status"]
        assert not set(NOT_YET_IN_STATUS) & set(status)
        host = {"hostname": name, "kernel": "4.19.0-gvisor", "kernel_banner": "gVisor", "sandbox": "gvisor"}
        found = environment.evidence(Described({"host": host, "cpu_allowance": {"told_cpus": 1.0}, "devices": {}}))
    assert found.active, found.reasons
    assert api.named("Pod") == []


@pytest.mark.parametrize("technique", ["exclusive", "time-slicing", "mps", "mig"])
def test_every_technique_by_claim_is_made_allocated_and_removed(api: KubeApi, technique: str) -> None:
    scheduler = ClaimScheduler(api)
    options = EnvironmentOptions(image="gputax:1", ready_timeout_s=10, sharing_flavour="dra", cpus=1)
    place = ClaimedShared(options, clock=VirtualClock(patience_s=5.0))
    count = 1 if technique == "exclusive" else 2
    place.switch(TECHNIQUES[technique], count, lambda text: None)
    tenants = place.tenants(TECHNIQUES[technique], count, count, SETUP)
    for tenant in tenants:
        start_without_worker(tenant.environment)
    (claim,) = scheduler.claims()
    results: list[dict[str, Any]] = claim["status"]["allocation"]["devices"]["results"]
    assert all(set(each) == {"request", "driver", "pool", "device"} for each in results)  # no shareID, no capacity
    assert all(each.claimed(number).devices for number, each in enumerate(place._latest, start=1))
    place.close()
    assert scheduler.claims() == []


def test_doctor_reads_such_a_cluster_to_its_end(api: KubeApi) -> None:
    ClaimScheduler(api)
    facts = inspect_cluster("", "gputax", claims=True)
    assert facts["version"] == VERSION
    assert facts["dra"]["api"] is True
    assert facts["problems"] == {}
