from __future__ import annotations

from typing import Any

import pytest

from gputax.kubernetes import objects
from gputax.kubernetes.objects import PodPlan, Size, job, pod, proxy_plan, suite_words
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


def test_only_a_layer_that_needs_a_path_of_the_node_gets_one() -> None:
    assert all("hostPath" not in volume for volume in pod(PLAN)["spec"]["volumes"])
    tenant = pod(PodPlan("p", "r", "i", tenant_of_proxy=True))
    (volume,) = [each for each in tenant["spec"]["volumes"] if "hostPath" in each]
    (mount,) = [each for each in container(tenant)["volumeMounts"] if each["name"] == volume["name"]]
    assert volume["hostPath"] == {"path": "/run/gputax-proxy", "type": "Directory"}
    assert mount["readOnly"] is True
    assert objects.GPU_RESOURCE not in container(tenant)["resources"]["limits"]


def rendered_tenants() -> list[objects.Manifest]:
    """Every pod of the overlays that mounts the directory of the proxy's socket read-only."""
    rendered = [each for place in PLACES.values() for each in place() if each["kind"] in ("Job", "Deployment")]
    specs = [each["spec"]["template"] for each in rendered]
    return [each for each in specs if any(volume["name"] == "proxy" for volume in each["spec"]["volumes"])]


def test_a_tenants_pod_refuses_the_devices_that_its_image_asks_for() -> None:
    """The image says NVIDIA_VISIBLE_DEVICES=all, and NVIDIA's runtime heeds it without any resource request."""
    tenants = [pod(PodPlan("p", "r", "i", tenant_of_proxy=True)), *rendered_tenants()]
    assert len(tenants) > 1
    for tenant in tenants:
        variables = [each for each in container(tenant)["env"] if each["name"] == "NVIDIA_VISIBLE_DEVICES"]
        assert variables == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]


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
