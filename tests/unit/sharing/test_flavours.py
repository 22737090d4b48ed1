"""What each installation calls a technique: names, files, labels, caps and entitlements, all without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gputax.errors import PreflightError, UsageError
from gputax.kubernetes.nodes import NodeFacts, node_facts
from gputax.kubernetes.objects import PodPlan, Size, pod
from gputax.plan.options import SHARING_FLAVOURS, EnvironmentOptions
from gputax.sharing.flavours import FLAVOURS, cluster_of, flavour_of, offer_for, plugin_file, plugin_files
from gputax.sharing.kubernetes.manifests import FILES_PERMISSIONS, NODE_PERMISSIONS, access_sharing
from gputax.sharing.kubernetes.node import Others, others_on, tenant_size
from gputax.sharing.kubernetes.plugin_config import ConfigPlace, missing_files, mounted_place, place_named
from gputax.sharing.offer import Offer, Wish, chosen_profile, unmet

ROOT = Path(__file__).resolve().parents[3]
A100 = {"nvidia.com/gpu.memory": "81920", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}


def node(labels: dict[str, str] | None = None, **allocatable: str) -> NodeFacts:
    return NodeFacts(
        "n", {**A100, **(labels or {})}, {}, {name.replace("__", "/"): n for name, n in allocatable.items()}
    )


def offer(flavour: str, technique: str, parts: int = 7, labels: dict[str, str] | None = None) -> Offer:
    return offer_for(node(labels), Wish(technique, parts), flavour)


def test_every_flavour_that_can_be_asked_for_exists() -> None:
    assert {"auto", "dra", *FLAVOURS} == set(SHARING_FLAVOURS)
    with pytest.raises(UsageError, match="unknown sharing flavour"):
        offer("nvidia", "mps")


@pytest.mark.parametrize(
    ("labels", "flavour"),
    [
        ({}, "device-plugin"),
        ({"nvidia.com/gpu.deploy.device-plugin": "true"}, "operator"),
        ({"nvidia.com/mig.config": "all-disabled"}, "operator"),
        ({"nos.nebuly.com/gpu-partitioning": "mps"}, "nos"),
        ({"cloud.google.com/gke-accelerator": "nvidia-l4"}, "gke"),
        (
            {"cloud.google.com/gke-accelerator": "nvidia-l4", "gke-no-default-nvidia-gpu-device-plugin": "true"},
            "device-plugin",
        ),
    ],
)
def test_who_divides_the_gpu_is_told_by_the_node(labels: dict[str, str], flavour: str) -> None:
    assert flavour_of(node(labels)) == flavour


def test_the_plugin_s_file_has_nvidia_s_own_shape() -> None:
    assert yaml.safe_load(plugin_file("mps", 7)) == {
        "version": "v1",
        "sharing": {
            "mps": {
                "renameByDefault": True,
                "failRequestsGreaterThanOne": True,
                "resources": [{"name": "nvidia.com/gpu", "replicas": 7}],
            }
        },
    }
    assert yaml.safe_load(plugin_file("exclusive", 7)) == {"version": "v1"}


def test_one_tenant_alone_is_two_replicas_because_the_plugin_takes_no_fewer() -> None:
    shared = yaml.safe_load(plugin_file("time-slicing", 1))["sharing"]["timeSlicing"]
    assert shared["resources"][0]["replicas"] == 2
    assert offer("device-plugin", "time-slicing", 1).least == 2


def test_on_several_gpus_the_tenants_are_packed_onto_one() -> None:
    several = offer("device-plugin", "mps", 3, {"nvidia.com/gpu.count": "4"})
    key = several.labels["nvidia.com/device-plugin.config"]
    assert key == "gputax-mps-3-packed"
    flags = yaml.safe_load(several.config[str(key)])["flags"]
    assert flags == {"plugin": {"sharedDevicesAllocationPolicy": "packed"}}


def test_the_files_that_are_shipped_are_those_that_share_makes() -> None:
    folder = ROOT / "kubernetes/sharing/device-plugin"
    named = yaml.safe_load((folder / "kustomization.yaml").read_text())["configMapGenerator"][0]["files"]
    shipped = {
        key: yaml.safe_load((folder / file).read_text()) for key, _, file in (each.partition("=") for each in named)
    }
    made = {key: yaml.safe_load(text) for gpus in (1, 2) for key, text in plugin_files(7, gpus).items()}
    assert shipped == made


def test_time_slicing_and_mps_by_the_device_plugin() -> None:
    slicing, mps = offer("device-plugin", "time-slicing"), offer("device-plugin", "mps")
    assert slicing.resource == mps.resource == "nvidia.com/gpu.shared"
    assert slicing.labels == {"nvidia.com/device-plugin.config": "gputax-time-slicing-7"}
    assert mps.shows == {"nvidia.com/gpu.sharing-strategy": ("mps",), "nvidia.com/gpu.replicas": ("7",)}
    assert (slicing.host_ipc, mps.host_ipc) == (False, False)
    assert slicing.entitlement.text == "up to all of it, in turns; no cap on memory"
    assert mps.entitlement.text == "14 % of the SMs, 11.4 GB"
    assert mps.entitlement.share == 0.14
    assert (mps.sm_percent, slicing.sm_percent) == (14, None)


def test_nos_caps_memory_alone_and_has_names_of_its_own() -> None:
    mps, mig = offer("nos", "mps"), offer("nos", "mig")
    assert (mps.resource, mig.resource) == ("nvidia.com/gpu-10gb", "nvidia.com/mig-1g.10gb")
    assert mps.labels == {"nos.nebuly.com/gpu-partitioning": "mps"}
    assert mps.host_ipc
    assert (mps.sm_percent, mps.memory_mb) == (None, 10240.0)
    assert mps.entitlement.text == "up to all SMs, 10 GB"
    labelled = node({"nos.nebuly.com/gpu-partitioning": "mps"})
    assert unmet(labelled, mps) == [], "nos makes the resource when pods ask for it"
    back = offer_for(labelled, Wish("time-slicing", 7), "nos")
    assert back.labels["nos.nebuly.com/gpu-partitioning"] is None


@pytest.mark.parametrize(
    ("strategy", "resource"),
    [("mixed", "nvidia.com/mig-1g.10gb"), ("single", "nvidia.com/gpu"), ("", "nvidia.com/mig-1g.10gb")],
)
def test_mig_s_name_depends_on_the_strategy(strategy: str, resource: str) -> None:
    found = offer("operator", "mig", labels={"nvidia.com/mig.strategy": strategy})
    assert found.resource == resource
    assert found.labels == {"nvidia.com/mig.config": "all-1g.10gb"}
    assert found.shows == {"nvidia.com/mig.config.state": ("success",)}
    assert found.entitlement.share == pytest.approx(1 / 7)


def test_a_shared_gpu_is_unshared_before_it_is_cut() -> None:
    found = offer("operator", "mig", labels={"nvidia.com/gpu.sharing-strategy": "mps"})
    assert found.labels == {
        "nvidia.com/device-plugin.config": "gputax-exclusive",
        "nvidia.com/mig.config": "all-1g.10gb",
    }


@pytest.mark.parametrize(
    ("memory_mb", "product", "parts", "profile"),
    [
        ("81920", "NVIDIA-A100-SXM4-80GB", 7, "1g.10gb"),
        ("40960", "NVIDIA-A100-SXM4-40GB", 7, "1g.5gb"),
        ("81559", "NVIDIA-H100-80GB-HBM3", 3, "2g.20gb"),
        ("81559", "NVIDIA-H100-80GB-HBM3", 2, "3g.40gb"),
        ("81559", "NVIDIA-H100-80GB-HBM3", 1, "7g.80gb"),
        ("143771", "NVIDIA-H200", 7, "1g.18gb"),
        ("143771", "NVIDIA-H200", 3, "2g.35gb"),
        ("143771", "NVIDIA-H200", 2, "3g.71gb"),
        ("183359", "NVIDIA-B200", 3, "2g.45gb"),
        ("24576", "NVIDIA-A30", 4, "1g.6gb"),
        ("24576", "NVIDIA-A30", 2, "2g.12gb"),
        ("", "", 5, "1g.10gb"),
    ],
)
def test_the_largest_profile_that_gives_enough_slices(memory_mb: str, product: str, parts: int, profile: str) -> None:
    labels = {"nvidia.com/gpu.memory": memory_mb, "nvidia.com/gpu.product": product}
    assert chosen_profile(NodeFacts("n", labels), parts) == profile


def test_a_profile_that_is_there_or_asked_for_is_taken() -> None:
    assert chosen_profile(node(None, **{"nvidia.com__mig-1g.12gb": "7"}), 7) == "1g.12gb"
    assert chosen_profile(node(), 7, "1g.10gb+me") == "1g.10gb+me"
    with pytest.raises(UsageError, match="is not a MIG profile"):
        chosen_profile(node(), 7, "10gb")
    with pytest.raises(UsageError, match="at most 7 slices, but 8 tenants"):
        chosen_profile(node(), 8)


@pytest.mark.parametrize(("capability", "most"), [(("8", "0"), 48), (("7", "0"), 16), (("", ""), 48)])
def test_more_clients_than_mps_takes_are_refused(capability: tuple[str, str], most: int) -> None:
    labels = dict(zip(("nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor"), capability, strict=True))
    assert offer("device-plugin", "mps", most, labels).replicas == most
    with pytest.raises(UsageError, match=f"at most {most} tenants"):
        offer("device-plugin", "mps", most + 1, labels)


GKE = {"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"}
GKE_MPS = {
    **GKE,
    "cloud.google.com/gke-gpu-sharing-strategy": "mps",
    "cloud.google.com/gke-max-shared-clients-per-gpu": "10",
}


def test_gke_keeps_the_name_of_the_resource_and_its_own_number_of_clients() -> None:
    found = offer("gke", "mps", 7, GKE_MPS)
    assert (found.resource, found.host_ipc, found.refusal) == ("nvidia.com/gpu", True, "")
    assert found.entitlement.text == "10 % of the SMs, 8.0 GB"
    sliced = offer("gke", "mig", 7, {**GKE, "cloud.google.com/gke-gpu-partition-size": "1g.10gb"})
    assert (sliced.profile, sliced.refusal) == ("1g.10gb", "")


@pytest.mark.parametrize(
    ("technique", "parts", "why", "command"),
    [
        ("mps", 11, "is 10, but 11 tenants are requested", "gpu-sharing-strategy=mps,max-shared-clients-per-gpu=11"),
        (
            "time-slicing",
            7,
            "is mps, not time-sharing",
            "gpu-sharing-strategy=time-sharing,max-shared-clients-per-gpu=7",
        ),
        ("exclusive", 7, "is mps, not absent", "type=nvidia-tesla-a100,count=1,gpu-driver-version=default"),
        ("mig", 7, "partition-size is not set, not 1g.10gb", "gpu-partition-size=1g.10gb"),
    ],
)
def test_gke_s_pool_for_another_technique_is_a_command(technique: str, parts: int, why: str, command: str) -> None:
    found = offer("gke", technique, parts, GKE_MPS)
    assert why in found.refusal
    assert command in found.refusal_step


def test_gke_s_cluster_is_named_by_the_context() -> None:
    assert cluster_of("gke_my-project_europe-west4-a_my_cluster") == ("my-project", "europe-west4-a", "my_cluster")
    assert cluster_of("kind-here") == ("PROJECT", "LOCATION", "CLUSTER")


def test_what_is_unmet_is_told_in_the_node_s_own_values() -> None:
    wanted = offer("device-plugin", "time-slicing", 7)
    assert unmet(node(), wanted) == [
        "nvidia.com/device-plugin.config is not set, not gputax-time-slicing-7",
        "nvidia.com/gpu.sharing-strategy is not set, not time-slicing",
        "nvidia.com/gpu.replicas is not set, not 7",
        "it offers 0 nvidia.com/gpu.shared, but 7 are needed",
    ]


def test_a_node_s_facts() -> None:
    manifest: dict[str, Any] = {
        "metadata": {"name": "n", "labels": {"nvidia.com/gpu.count": "2"}},
        "spec": {"unschedulable": True},
        "status": {
            "allocatable": {"nvidia.com/gpu": "2", "cpu": "4"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    facts = node_facts(manifest)
    assert (facts.gpus, facts.has_gpu, facts.usable, facts.memory_mb) == (2, True, False, None)
    assert facts.kept()["allocatable"] == {"nvidia.com/gpu": "2"}
    assert not node_facts({"metadata": {"name": "n", "labels": {"nvidia.com/gpu.present": "false"}}}).has_gpu


def daemon_set(name: str, image: str, **volumes: str) -> dict[str, Any]:
    mounted = [{"name": volume.replace("_", "-"), "configMap": {"name": config}} for volume, config in volumes.items()]
    spec = {"containers": [{"image": image}], "volumes": [{"name": "root", "hostPath": {}}, *mounted]}
    return {"metadata": {"name": name, "namespace": "gpu-operator"}, "spec": {"template": {"spec": spec}}}


PLUGIN_IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"


def test_the_plugin_s_config_map_is_found_where_it_is_mounted() -> None:
    other = daemon_set("proxy", "kube-proxy:1", config="kube-proxy")
    plugin = daemon_set(
        "plugin", PLUGIN_IMAGE, entrypoint="nvidia-device-plugin-entrypoint", config="x", available_configs="files"
    )
    bare = daemon_set("own", PLUGIN_IMAGE)
    assert mounted_place([other, bare, plugin]) == ConfigPlace("gpu-operator", "files")
    assert mounted_place([other]) is None
    with pytest.raises(PreflightError, match="mounts no ConfigMap"):
        mounted_place([bare])
    assert place_named("a/b") == ConfigPlace("a", "b")
    with pytest.raises(UsageError, match="is not NAMESPACE/NAME"):
        place_named("b")


def test_a_file_that_says_the_same_in_other_words_is_left_to_its_owner() -> None:
    theirs = "# a comment of theirs\n" + plugin_file("mps", 7)
    assert missing_files(
        {"gputax-mps-7": plugin_file("mps", 7), "new": "version: v1"}, {"gputax-mps-7": theirs}, "m"
    ) == {"new": "version: v1"}


def running(name: str, run: str = "", phase: str = "Running", **requests: str) -> dict[str, Any]:
    limits = {key.replace("__", "/"): value for key, value in requests.items()}
    return {
        "metadata": {"name": name, "namespace": "s", "labels": {"run": run}},
        "spec": {"containers": [{"resources": {"requests": limits}}]},
        "status": {"phase": phase},
    }


def test_the_pods_of_others_are_counted_and_ours_are_not() -> None:
    found = others_on(
        [
            running("a", cpu="250m", memory="512Mi"),
            running("b", cpu="1", nvidia__gpu="1", **{"nvidia.com__gpu": "1"}),
            running("ours", run="r", cpu="2"),
            running("done", phase="Succeeded", cpu="4"),
        ],
        "run",
        "r",
    )
    assert found == Others(1250.0, 512.0, ("s/b",))


@pytest.mark.parametrize(
    ("cpu", "parts", "others", "cpus", "size"),
    [
        ("24", 7, Others(), 0, Size(3, "4Gi")),
        ("2", 7, Others(300.0), 0, Size(1, "4Gi", millicpus=240)),
        ("2", 7, None, 0, Size(1, "4Gi", millicpus=220)),
        ("24", 7, Others(), 1, Size(1, "4Gi")),
        ("24", 7, Others(0.0, 40960.0), 0, Size(3, "3510Mi")),
    ],
)
def test_each_tenant_gets_its_part_of_the_node_whatever_the_number_that_runs(
    cpu: str, parts: int, others: Others | None, cpus: int, size: Size
) -> None:
    assert tenant_size(node(None, cpu=cpu, memory="64Gi"), parts, others, cpus, "4Gi") == size


def test_parts_of_a_cpu_are_requested_and_limited_alike() -> None:
    resources = Size(1, "1Gi", 1, "nvidia.com/gpu.shared", 240).resources()
    assert resources["requests"] == resources["limits"]
    assert resources["limits"] == {"cpu": "240m", "memory": "1Gi", "nvidia.com/gpu.shared": "1"}


def test_only_a_pod_that_needs_the_node_s_shared_memory_sees_it() -> None:
    assert "hostIPC" not in pod(PodPlan("p", "r", "i"))["spec"]
    assert pod(PodPlan("p", "r", "i", host_ipc=True))["spec"]["hostIPC"] is True


def test_the_opt_in_role_is_what_the_code_uses_and_nothing_more() -> None:
    folder = ROOT / "kubernetes/access-sharing"
    assert list(yaml.safe_load_all((folder / "access.yaml").read_text())) == access_sharing()
    assert "*" not in str(access_sharing())
    assert all(each.why for each in (*NODE_PERMISSIONS, *FILES_PERMISSIONS))
    assert "nodes" not in (ROOT / "kubernetes/access/access.yaml").read_text()


def test_a_flavour_that_does_not_exist_is_refused_where_it_is_said() -> None:
    assert EnvironmentOptions().changed(["sharing-flavour=gke"]).sharing_flavour == "gke"
    with pytest.raises(UsageError, match="unknown sharing flavour 'gks'"):
        EnvironmentOptions().changed(["sharing-flavour=gks"])
