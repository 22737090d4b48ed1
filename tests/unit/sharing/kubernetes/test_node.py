"""Switching a node against an API server in memory: switched, refused, and restored however it ends."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator

import pytest

from gputax.errors import PreflightError
from gputax.kubernetes.watch import Clock
from gputax.plan.options import EnvironmentOptions
from gputax.sharing.kubernetes.claim import BEFORE, OWNER
from gputax.sharing.kubernetes.node import SharingNode
from gputax.sharing.kubernetes.tenant_pods import TenantPods
from tests.standins.gpu_node import CONFIG_MAP, NODE, GpuNode
from tests.standins.kube_api import KubeApi
from tests.standins.virtual_clock import VirtualClock

CONFIG, MIG = "nvidia.com/device-plugin.config", "nvidia.com/mig.config"
NO_PROCESS = 2**22 + 1
"""Larger than any process id that the kernel gives."""


class Place:
    """A node of an experiment, with what was said."""

    def __init__(self, clock: Clock | None = None, **options: object) -> None:
        self.said: list[str] = []
        chosen = EnvironmentOptions(**{"ready_timeout_s": 60, **options})  # type: ignore[arg-type]
        self.pods = TenantPods("", "gputax", self.said.append, clock=clock)
        self.node = SharingNode(self.pods, chosen)

    def bring_to(self, technique: str, parts: int = 7) -> None:
        self.node.bring_to(technique, parts, self.said.append)

    def close(self) -> None:
        self.node.close(self.said.append)
        self.pods.close()


@pytest.fixture
def place(api: KubeApi) -> Iterator[Place]:
    made = Place()
    yield made
    made.close()


@pytest.fixture
def impatient(api: KubeApi) -> Iterator[Place]:
    """A place that takes the time as passed once the API server has nothing new for a moment."""
    made = Place(VirtualClock(patience_s=0.2))
    yield made
    made.close()


def test_a_node_is_brought_to_a_technique_and_back_by_watching_it(api: KubeApi, place: Place) -> None:
    gpu = GpuNode(api)
    before = gpu.labels
    place.bring_to("time-slicing")
    assert gpu.labels["nvidia.com/gpu.sharing-strategy"] == "time-slicing"
    assert json.loads(gpu.annotations[BEFORE]) == {CONFIG: None}
    place.bring_to("mps")
    assert gpu.labels[CONFIG] == "gputax-mps-7"
    assert place.node.offer is not None
    assert place.node.offer.resource == "nvidia.com/gpu.shared"
    place.node.put_back()
    assert gpu.labels == before
    assert gpu.annotations == {}
    assert CONFIG_MAP not in api.objects
    reads = [request for request in api.requests if request == f"GET /api/v1/nodes/{NODE}"]
    assert len(reads) == 2, "one read per change of labels; all else came by the watch"


def test_nothing_happens_where_it_is_there_already(api: KubeApi, place: Place) -> None:
    GpuNode(api)
    place.bring_to("exclusive")
    place.bring_to("exclusive")
    assert not [request for request in api.requests if request.startswith("PATCH")]


def test_the_operator_s_mig_is_waited_for_and_turned_off_for_the_next_technique(api: KubeApi) -> None:
    gpu = GpuNode(api, labels={"nvidia.com/gpu.deploy.mig-manager": "true"})
    before = gpu.labels
    place = Place()
    place.bring_to("mig")
    assert gpu.labels[MIG] == "all-1g.10gb"
    assert gpu.labels["nvidia.com/mig.config.state"] == "success"
    place.bring_to("time-slicing")
    assert gpu.labels[MIG] == "all-disabled"
    place.close()
    assert {name: gpu.labels.get(name) for name in (CONFIG, MIG)} == {CONFIG: before.get(CONFIG), MIG: before.get(MIG)}


def test_a_technique_that_never_becomes_ready_is_refused_in_the_cluster_s_words(api: KubeApi, impatient: Place) -> None:
    gpu, place = GpuNode(api, fault="never"), impatient
    with pytest.raises(PreflightError, match="mps was not offered within 60 s") as raised:
        place.bring_to("mps")
    assert "nvidia.com/gpu.sharing-strategy is none, not mps" in raised.value.what
    assert "it offers 0 nvidia.com/gpu.shared, but 7 are needed" in raised.value.what
    assert "nvidia-device-plugin get pods" in raised.value.next_step
    place.close()
    assert CONFIG not in gpu.labels


def test_labels_that_claim_it_do_not_count_without_the_offer(api: KubeApi, impatient: Place) -> None:
    GpuNode(api, fault="labels-only")
    with pytest.raises(PreflightError, match=r"offers 0 nvidia.com/gpu.shared, but 7 are needed") as raised:
        impatient.bring_to("time-slicing")
    assert "sharing-strategy" not in raised.value.what


def test_mig_that_failed_is_told_at_once_and_an_old_failure_is_not_taken_for_it(api: KubeApi) -> None:
    gpu = GpuNode(api, fault="mig-fails", labels={MIG: "all-disabled", "nvidia.com/mig.config.state": "failed"})
    place = Place(ready_timeout_s=30)
    with pytest.raises(PreflightError, match=r"mig.config.state is failed") as raised:
        place.bring_to("mig")
    assert raised.value.exit_code == 3
    assert any("mig.config.state is pending" in line for line in place.said)
    place.close()
    assert gpu.labels[MIG] == "all-disabled"


def test_mig_without_the_operator_is_refused_before_anything_changes(api: KubeApi, place: Place) -> None:
    GpuNode(api)
    with pytest.raises(PreflightError, match="cannot partition a GPU with MIG") as raised:
        place.bring_to("mig")
    assert "nvidia-smi -i 0 -mig 1" in raised.value.next_step
    assert not [request for request in api.requests if request.startswith("PATCH")]


def test_an_interrupt_in_the_middle_of_a_switch_leaves_the_node_as_it_was(api: KubeApi) -> None:
    gpu = GpuNode(api, fault="never", labels={CONFIG: "admins-own"})
    place = Place()

    def interrupted(text: str) -> None:
        if "sharing-strategy is none" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        place.node.bring_to("mps", 7, interrupted)
    assert gpu.labels[CONFIG] == "gputax-mps-7"
    place.close()
    assert gpu.labels[CONFIG] == "admins-own"
    assert gpu.annotations == {}
    assert CONFIG_MAP not in api.objects


def killed(api: KubeApi, host: str, pid: int) -> GpuNode:
    """Return a node as a killed run leaves it."""
    gpu = GpuNode(api, labels={CONFIG: "gputax-mps-7"})
    gpu.set({"nvidia.com/gpu.sharing-strategy": "mps", "nvidia.com/gpu.replicas": "7"}, {"nvidia.com/gpu.shared": "7"})
    owner = f"{host}/{pid}/1116-dead"
    note = json.dumps({CONFIG: "admins-own"})
    api.merge(gpu.path, {"metadata": {"annotations": {BEFORE: note, OWNER: owner}}})
    api.put(
        "/api/v1/namespaces/gputax/pods/gputax-tenant-1116-dead-1",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "gputax-tenant-1116-dead-1",
                "namespace": "gputax",
                "labels": {
                    "app.kubernetes.io/managed-by": "gputax",
                    "app.kubernetes.io/component": "tenant",
                    "gputax.dev/run": "1116-dead",
                },
            },
            "spec": {"containers": []},
            "status": {"phase": "Running"},
        },
    )
    return gpu


def test_what_a_killed_run_left_is_taken_over_and_its_labels_of_before_come_back(api: KubeApi, place: Place) -> None:
    gpu = killed(api, platform.node(), NO_PROCESS)
    place.bring_to("mps")
    assert "1116-dead" not in gpu.annotations[OWNER]
    assert api.named("Pod") == []
    place.node.put_back()
    assert gpu.labels[CONFIG] == "admins-own"
    assert gpu.annotations == {}


@pytest.mark.parametrize(("host", "pid"), [("another-machine", 1), (platform.node(), 1)])
def test_a_node_that_another_run_may_still_have_is_refused(api: KubeApi, place: Place, host: str, pid: int) -> None:
    gpu = killed(api, host, pid)
    with pytest.raises(PreflightError, match="another experiment is using the node") as raised:
        place.bring_to("time-slicing")
    assert f"annotate node {NODE} {OWNER}-" in raised.value.next_step
    assert gpu.labels[CONFIG] == "gputax-mps-7"


def test_the_files_of_others_stay_and_one_under_our_name_is_not_overwritten(api: KubeApi, place: Place) -> None:
    GpuNode(api)
    theirs = {"default": "version: v1\n"}
    api.objects[CONFIG_MAP] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "nvidia-plugin-configs", "namespace": "nvidia-device-plugin"},
        "data": dict(theirs),
    }
    place.bring_to("time-slicing")
    assert set(api.objects[CONFIG_MAP]["data"]) > {"default", "gputax-time-slicing-7", "gputax-mps-7"}
    place.node.put_back()
    assert api.objects[CONFIG_MAP]["data"] == theirs
    api.objects[CONFIG_MAP]["data"]["gputax-mps-7"] = "version: v1\n"
    with pytest.raises(PreflightError, match="already exists with different content"):
        place.bring_to("mps")


def test_without_the_right_to_label_nodes_the_role_is_named(api: KubeApi, place: Place) -> None:
    GpuNode(api)
    api.forbidden.add(f"PATCH {NODE}")
    with pytest.raises(PreflightError, match="not permitted") as raised:
        place.bring_to("mps")
    assert "kubernetes/access-sharing" in raised.value.next_step


def test_gke_s_nodes_are_chosen_and_a_missing_pool_is_refused_with_the_command_that_makes_it(
    api: KubeApi, place: Place
) -> None:
    gke = {"cloud.google.com/gke-accelerator": "nvidia-tesla-a100", "node.kubernetes.io/instance-type": "a2-highgpu-1g"}
    shared = {
        **gke,
        "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
        "cloud.google.com/gke-max-shared-clients-per-gpu": "7",
    }
    api.add_node("plain", 1, gke)
    api.add_node("sliced", 7, shared)
    place.bring_to("exclusive")
    assert place.node.current().name == "plain"
    place.bring_to("time-slicing")
    assert place.node.current().name == "sliced"
    with pytest.raises(PreflightError, match="gke-gpu-sharing-strategy is not set, not mps") as raised:
        place.bring_to("mps")
    assert raised.value.next_step == (
        "gcloud container node-pools create gputax-mps --project PROJECT --location LOCATION --cluster CLUSTER "
        "--machine-type a2-highgpu-1g --num-nodes 1 --accelerator type=nvidia-tesla-a100,count=1,"
        "gpu-sharing-strategy=mps,max-shared-clients-per-gpu=7,gpu-driver-version=default"
    )
    assert not [request for request in api.requests if request.startswith("PATCH")]


def test_a_cluster_without_a_gpu_node_is_refused(api: KubeApi, place: Place) -> None:
    api.add_node("plain", 0)
    with pytest.raises(PreflightError, match="no usable node offers a GPU"):
        place.bring_to("mps")
