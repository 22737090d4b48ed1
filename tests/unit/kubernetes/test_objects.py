from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputax.kubernetes import objects
from gputax.kubernetes.objects import (
    PodClaim,
    PodPlan,
    Size,
    job,
    pod,
    proxy_daemon_set,
    proxy_network_policy,
    proxy_plan,
    suite_words,
)
from gputax.kubernetes.permissions import PERMISSIONS, rules
from tests.builders.kustomizations import PLACES

PLAN = PodPlan("p", "run-1", "gputax:1", Size(2, "4Gi", 1))


def container(manifest: dict[str, Any]) -> dict[str, Any]:
    spec = manifest["spec"]
    only: list[dict[str, Any]] = (spec["template"]["spec"] if "template" in spec else spec)["containers"]
    return only[0]


def test_requests_equal_limits_in_whole_cpus_so_that_the_pod_is_guaranteed() -> None:
    resources = container(pod(PLAN))["resources"]
    assert resources["requests"] == resources["limits"] == {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"}


def test_every_object_carries_the_run() -> None:
    for manifest in (pod(PLAN), job(PLAN, ["true"]), job(PLAN, ["true"])["spec"]["template"]):
        labels = manifest["metadata"]["labels"]
        assert labels["gputax.dev/run"] == "run-1"
        assert labels["app.kubernetes.io/managed-by"] == "gputax"


@pytest.mark.parametrize("plan", [PLAN, proxy_plan()], ids=["worker", "proxy"])
def test_a_pod_is_restricted_and_only_the_proxy_is_root_without_any_capability(plan: PodPlan) -> None:
    manifest = pod(plan)
    security = container(manifest)["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert manifest["spec"]["automountServiceAccountToken"] is False
    whole = manifest["spec"]["securityContext"]
    assert whole["seccompProfile"] == {"type": "RuntimeDefault"}
    assert whole.get("runAsNonRoot", False) is not plan.serves_proxy


TENANT = PodPlan("p", "r", "i", tenant_of_proxy=True)


def test_a_tenant_asks_for_a_place_and_gets_no_path_of_the_node_and_no_device() -> None:
    assert "hostPath" not in str([pod(PLAN), pod(TENANT)])
    resources = container(pod(TENANT))["resources"]
    assert resources["limits"]["gputax.dev/vgpu"] == resources["requests"]["gputax.dev/vgpu"] == "1"
    assert objects.GPU_RESOURCE not in resources["limits"]
    assert "gputax.dev/vgpu" not in container(pod(PLAN))["resources"]["limits"]
    assert pod(TENANT)["spec"]["tolerations"] == [objects.gpu_toleration()], "the proxy's node is a GPU node"


@pytest.mark.parametrize("device", ["cuda", "software"])
def test_the_proxy_is_in_a_namespace_of_its_own_beside_the_plugin_that_offers_it(device: str) -> None:
    manifest = proxy_daemon_set(proxy_plan(device=device), "r")
    assert manifest["metadata"]["namespace"] == "gputax-proxy"
    spec = manifest["spec"]["template"]["spec"]
    proxy, plugin = spec["containers"]
    assert ("nvidia.com/gpu" in proxy["resources"]["limits"]) is (device == "cuda")
    assert "nvidia.com/gpu" not in plugin["resources"]["limits"]
    paths = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each}
    assert paths == {
        "proxy": "/run/gputax-proxy", "library": "/var/lib/gputax-proxy", "kubelet": "/var/lib/kubelet/device-plugins",
    }  # fmt: skip
    mounted = {each["name"]: each for each in proxy["volumeMounts"]}
    assert not {"library", "kubelet"} & mounted.keys(), "what a tenant could break cannot reach the kubelet"
    assert next(each for each in plugin["volumeMounts"] if each["name"] == "proxy")["readOnly"] is True
    # Sockets are passed on by their path, which must be the same on the node and in the container.
    assert all(each["mountPath"] == paths[each["name"]] for each in plugin["volumeMounts"] if each["name"] in paths)
    for each in (proxy, plugin):
        assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert proxy["command"][-2:] == ["--places", "16"]
    assert "--mode" not in proxy["command"], "the proxy's own socket is the operator's"


def test_the_proxy_is_probed_for_as_long_as_it_runs_and_has_no_network() -> None:
    probes = {name: each for name, each in container(pod(proxy_plan())).items() if name.endswith("Probe")}
    assert set(probes) == {"startupProbe", "readinessProbe", "livenessProbe"}
    for each in probes.values():
        assert each["exec"]["command"][1:] == ["--check", "/run/gputax-proxy/proxy.sock.status"]
    policy = proxy_network_policy()
    assert policy["metadata"]["namespace"] == "gputax-proxy"
    assert policy["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def rendered_tenants() -> list[objects.Manifest]:
    """Every pod of the overlays that asks for a place behind the proxy."""
    rendered = [each for place in PLACES.values() for each in place() if each["kind"] in ("Job", "Deployment")]
    specs = [each["spec"]["template"] for each in rendered]
    return [each for each in specs if "gputax.dev/vgpu" in str(each)]


def test_a_tenants_pod_refuses_the_devices_that_its_image_asks_for() -> None:
    """The image says NVIDIA_VISIBLE_DEVICES=all, and NVIDIA's runtime heeds it without any resource request."""
    tenants = [pod(TENANT), *rendered_tenants()]
    assert len(tenants) > 1
    for tenant in tenants:
        variables = [each for each in container(tenant)["env"] if each["name"] == "NVIDIA_VISIBLE_DEVICES"]
        assert variables == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]


def test_a_path_of_the_node_is_only_in_the_proxys_namespace_and_only_that_one_is_privileged_for_it() -> None:
    for place, made in PLACES.items():
        for each in made():
            if "hostPath" in str(each):
                assert each["metadata"]["namespace"] == "gputax-proxy", place
            if each["kind"] in ("Role", "RoleBinding"):
                assert each["metadata"]["namespace"] == "gputax", "nobody gets a right in the proxy's namespace"
            if each["kind"] == "Namespace" and each["metadata"]["name"] == "gputax" and "mps" not in place:
                assert each["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted", place


def test_only_a_tenants_pod_refuses_devices() -> None:
    for plan in (PLAN, proxy_plan()):
        assert "NVIDIA_VISIBLE_DEVICES" not in [each["name"] for each in container(pod(plan))["env"]]


def test_a_node_by_name_still_goes_through_the_scheduler() -> None:
    spec = pod(PodPlan("p", "r", "i", node="gpu-1"))["spec"]
    assert "nodeName" not in spec
    assert "gpu-1" in str(spec["affinity"])


def test_a_job_runs_once_is_told_its_pod_and_prints_the_block_last() -> None:
    manifest = job(PLAN, suite_words("quick"), deadline_s=60, ttl_s=5)
    assert manifest["spec"]["backoffLimit"] == 0
    assert manifest["spec"]["activeDeadlineSeconds"] == 60
    assert manifest["spec"]["ttlSecondsAfterFinished"] == 5
    assert container(manifest)["command"][-1] == "--result-block"
    assert "GPUTAX_POD_UID" in [each["name"] for each in container(manifest)["env"]]


def test_no_rule_says_everything_and_each_permission_has_a_reason() -> None:
    assert "*" not in str(rules())
    assert all(each.why for each in PERMISSIONS)
    assert {"pods", "pods/exec", "pods/log", "events"} == {each.resource for each in PERMISSIONS}


def test_a_claim_takes_the_place_of_a_counted_gpu() -> None:
    plan = PodPlan("p", "r", "i", Size(1, "1Gi"), claim=PodClaim("mine", "slice-2"))
    spec = pod(plan)["spec"]
    assert spec["resourceClaims"] == [{"name": "gpu", "resourceClaimName": "mine"}]
    resources = spec["containers"][0]["resources"]
    assert resources["claims"] == [{"name": "gpu", "request": "slice-2"}]
    assert set(resources["limits"]) == {"cpu", "memory"}
    assert spec["tolerations"][0]["key"] == "nvidia.com/gpu"
    of_a_template = pod(replace(plan, claim=PodClaim("t", template=True)))["spec"]
    assert of_a_template["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    assert of_a_template["containers"][0]["resources"]["claims"] == [{"name": "gpu"}]
