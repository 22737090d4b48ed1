"""A kubelet may reject a pod while the device plugin changes its devices: the pod is made again, but not for ever."""

from __future__ import annotations

import pytest

from gputax.errors import PreflightError
from gputax.kubernetes.objects import PodPlan
from gputax.kubernetes.pods import ReadyPod, RunPods
from gputax.sharing.kubernetes import tenant_pods
from gputax.sharing.kubernetes.tenant_pods import TenantPods
from tests.standins.kube_api import KubeApi

PLAN = PodPlan("", "", "gputax:e2e", role="tenant")
REJECTED = "the pod ended before it was ready: UnexpectedAdmissionError; Pod was rejected: Allocate failed"


class Kubelet:
    """Answers each attempt in turn: with an error, or with a pod that runs."""

    def __init__(self, *errors: str) -> None:
        self.errors = list(errors)
        self.asked = 0

    def ready(self, pods: RunPods, plan: PodPlan, timeout_s: float) -> ReadyPod:
        self.asked += 1
        if self.errors:
            raise PreflightError(self.errors.pop(0))
        return ReadyPod("gputax-tenant-2", {}, {})


@pytest.fixture
def pods(api: KubeApi, monkeypatch: pytest.MonkeyPatch) -> TenantPods:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    return TenantPods("", "gputax", lambda text: None)


def answered(pods: TenantPods, monkeypatch: pytest.MonkeyPatch, kubelet: Kubelet) -> ReadyPod:
    monkeypatch.setattr(RunPods, "ready", lambda self, plan, timeout_s: kubelet.ready(self, plan, timeout_s))
    return pods.ready(PLAN, 60)


def test_a_pod_that_was_rejected_while_devices_changed_is_made_again(
    pods: TenantPods, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet = Kubelet(REJECTED, REJECTED)
    assert answered(pods, monkeypatch, kubelet).name == "gputax-tenant-2"
    assert kubelet.asked == 3


def test_a_node_that_goes_on_rejecting_is_told(pods: TenantPods, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_pods, "ADMISSION_GRACE_S", -1.0)
    with pytest.raises(PreflightError, match="UnexpectedAdmissionError"):
        answered(pods, monkeypatch, Kubelet(REJECTED))


def test_any_other_reason_is_told_at_once(pods: TenantPods, monkeypatch: pytest.MonkeyPatch) -> None:
    kubelet = Kubelet("the pod cannot be scheduled: Insufficient nvidia.com/gpu.shared")
    with pytest.raises(PreflightError, match="Insufficient"):
        answered(pods, monkeypatch, kubelet)
    assert kubelet.asked == 1
