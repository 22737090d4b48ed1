"""kubernetes/sharing: the tenant of each technique asks for the right resource, on the right node, within bounds."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gputax.plan.techniques import TECHNIQUES
from gputax.sharing.flavours import EXCLUSIVE_KEY, plugin_files
from tests.process.manifests.built import KUBERNETES, OVERLAYS, Manifest, built, one, read_back

STRATEGY = "nvidia.com/gpu.sharing-strategy"
GKE = "cloud.google.com/gke-"
# overlay -> technique, resource, what the node must say of itself
EXPECTED: dict[str, tuple[str, str | None, dict[str, str]]] = {
    "ts": ("time-slicing", "nvidia.com/gpu.shared", {STRATEGY: "time-slicing"}),
    "mps": ("mps", "nvidia.com/gpu.shared", {STRATEGY: "mps"}),
    "mig": ("mig", "nvidia.com/mig-1g.10gb", {}),
    "cpu": ("cpu-quota", None, {}),
    "gke-ts": (
        "time-slicing",
        "nvidia.com/gpu",
        {f"{GKE}gpu-sharing-strategy": "time-sharing", f"{GKE}max-shared-clients-per-gpu": "7"},
    ),
    "gke-mps": (
        "mps",
        "nvidia.com/gpu",
        {f"{GKE}gpu-sharing-strategy": "mps", f"{GKE}max-shared-clients-per-gpu": "7"},
    ),
    "gke-mig": ("mig", "nvidia.com/gpu", {f"{GKE}gpu-partition-size": "1g.10gb"}),
    "nos-mps": ("mps", "nvidia.com/gpu-10gb", {"nos.nebuly.com/gpu-partitioning": "mps"}),
}
# MPS on GKE and in nos talks through the host's shared memory, which restricted pod security forbids.
HOST_IPC = {"gke-mps", "nos-mps"}


def pod(overlay: str) -> Manifest:
    template: Manifest = one(built(f"sharing/overlays/{overlay}"), "Deployment")["spec"]["template"]
    return template


def container(overlay: str) -> Manifest:
    (only,) = pod(overlay)["spec"]["containers"]
    return dict(only)


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def test_every_overlay_is_expected_here() -> None:
    assert set(OVERLAYS) == set(EXPECTED)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_field_is_one_that_kubernetes_knows(overlay: str) -> None:
    for manifest in built(f"sharing/overlays/{overlay}"):
        # A field that the API's types do not have is lost on the way through them.
        assert read_back(manifest) == manifest


def test_a_field_that_kubernetes_does_not_know_is_found() -> None:
    manifest = one(built("sharing/overlays/ts"), "Deployment")
    manifest["spec"]["template"]["spec"]["containers"][0]["replicas"] = 7
    assert read_back(manifest) != manifest


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_tenant_asks_for_its_technique_s_resource_where_the_node_says_that_it_is_on(overlay: str) -> None:
    technique, resource, selector = EXPECTED[overlay]
    devices = {
        name: amount for name, amount in container(overlay)["resources"]["limits"].items() if name.startswith("nvidia")
    }
    assert devices == ({resource: "1"} if resource else {})
    assert pod(overlay)["spec"].get("nodeSelector", {}) == selector
    assert pod(overlay)["metadata"]["labels"]["gputax.dev/technique"] == technique


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_tenant_runs_yolos_small_and_names_its_technique(overlay: str) -> None:
    technique, resource, _ = EXPECTED[overlay]
    found = container(overlay)
    assert found["command"] == ["gputax", "client"]
    assert technique in TECHNIQUES
    assert option(found["args"], "--technique") == technique
    assert option(found["args"], "--workload") == "yolos-small"
    assert option(found["args"], "--device") == ("cuda" if resource else "cpu"), "a device is never replaced in silence"
    assert found["ports"] == [{"name": "prometheus", "containerPort": 8000, "protocol": "TCP"}]


def test_the_client_understands_the_arguments_of_every_overlay() -> None:
    from gputax.cli.client import client

    for overlay in OVERLAYS:
        chosen = client.make_context("client", list(container(overlay)["args"])).params
        assert chosen["technique"] == EXPECTED[overlay][0]
        assert chosen["port"] == 8000


def test_the_tenant_without_a_gpu_is_a_stand_in_and_says_so() -> None:
    assert TECHNIQUES[option(container("cpu")["args"], "--technique")].stand_in


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_tenant_is_guaranteed_and_there_is_one_of_them_at_first(overlay: str) -> None:
    resources = container(overlay)["resources"]
    assert resources["requests"] == resources["limits"]
    assert {"cpu", "memory"} <= set(resources["limits"])
    assert one(built(f"sharing/overlays/{overlay}"), "Deployment")["spec"]["replicas"] == 1


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_tenant_is_restricted_as_the_job_of_the_base_is(overlay: str) -> None:
    job = one(built("base"), "Job")["spec"]["template"]["spec"]
    assert pod(overlay)["spec"]["securityContext"] == job["securityContext"]
    assert container(overlay)["securityContext"] == job["containers"][0]["securityContext"]
    assert pod(overlay)["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_only_what_needs_the_host_s_shared_memory_gets_it_and_a_namespace_that_allows_it(overlay: str) -> None:
    level = one(built(f"sharing/overlays/{overlay}"), "Namespace")["metadata"]["labels"][
        "pod-security.kubernetes.io/enforce"
    ]
    assert pod(overlay)["spec"].get("hostIPC", False) is (overlay in HOST_IPC)
    assert level == ("privileged" if overlay in HOST_IPC else "restricted")


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_tenants_are_on_one_node_and_a_new_technique_waits_for_the_old_one_to_end(overlay: str) -> None:
    deployment = one(built(f"sharing/overlays/{overlay}"), "Deployment")["spec"]
    (term,) = deployment["template"]["spec"]["affinity"]["podAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    # Otherwise not even the first pod could be placed: it must match the rule itself.
    assert term["labelSelector"]["matchLabels"].items() <= deployment["template"]["metadata"]["labels"].items()
    assert deployment["selector"]["matchLabels"].items() <= deployment["template"]["metadata"]["labels"].items()
    assert "gputax.dev/technique" not in deployment["selector"]["matchLabels"], "a selector cannot be changed later"
    assert deployment["strategy"] == {"type": "Recreate"}


def test_the_device_plugin_s_files_are_those_that_share_writes() -> None:
    config = one(built("sharing/device-plugin"), "ConfigMap")
    made = {**plugin_files(7), **plugin_files(7, gpus=2)}
    assert {key: yaml.safe_load(text) for key, text in config["data"].items()} == {
        key: yaml.safe_load(text) for key, text in made.items()
    }


@pytest.mark.parametrize("chart", ["gpu-operator", "nvidia-device-plugin"])
def test_the_charts_read_that_config_map_and_share_nothing_at_first(chart: str) -> None:
    values: dict[str, Any] = yaml.safe_load((KUBERNETES / f"sharing/values/{chart}.yaml").read_text())
    config = (values["devicePlugin"] if chart == "gpu-operator" else values)["config"]
    assert config["name"] == one(built("sharing/device-plugin"), "ConfigMap")["metadata"]["name"]
    assert config["default"] == EXCLUSIVE_KEY


def test_every_file_below_sharing_is_used_by_a_kustomization_or_the_makefile() -> None:
    makefile = (KUBERNETES.parent / "Makefile").read_text()
    for path in (KUBERNETES / "sharing").rglob("*.*"):
        if path.name == "kustomization.yaml":
            continue
        beside = path.parent / "kustomization.yaml"
        named = beside.read_text() if beside.exists() else makefile
        assert path.name in named, path
