"""Many pods, one watch: what the API server is asked does not grow with them."""

from __future__ import annotations

import pytest

from gputax.kubernetes.client import Cluster
from gputax.kubernetes.objects import APP, RUN_LABEL
from gputax.kubernetes.watch import PodWatch, state_of
from tests.e2e.real_cluster import RealCluster, calls_since, eventually

pytestmark = pytest.mark.e2e


def test_fifty_pods_are_followed_by_one_request(real_cluster: RealCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(real_cluster.kubeconfig))
    run = {"app.kubernetes.io/managed-by": APP, RUN_LABEL: "fifty"}
    names = [f"one-of-fifty-{number}" for number in range(50)]
    container = {"name": "main", "image": real_cluster.image}
    # No node has this name: the scheduler has its say of each pod, and no container is started.
    spec = {"nodeSelector": {"kubernetes.io/hostname": "nowhere"}, "containers": [container]}
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": run}, "spec": spec} for name in names
    ]
    delete = ("delete", "pods", "-n", "default", "-l", f"{RUN_LABEL}=fifty", "--grace-period=0", "--force")
    cluster = Cluster(namespace="default")
    watch = PodWatch(cluster, run)

    def reported(wanted: list[str]) -> bool:
        seen = [watch.latest(name) for name in wanted]
        return all(each is not None and state_of(each[1]).reason == "Unschedulable" for each in seen)

    try:
        real_cluster.apply(pods[0])
        eventually("the watch reports the first", lambda: reported(names[:1]), 30)
        before = real_cluster.own.audit_log.stat().st_size
        real_cluster.apply(*pods[1:])
        eventually("the watch reports all", lambda: reported(names), 30)
        real_cluster.kubectl(*delete)
        assert all(watch.wait_gone(name, 30) for name in names)
    finally:
        real_cluster.kubectl(*delete)
        watch.close()
        cluster.close()
    # All that can be there is the end of the one request that was open before the pods were made.
    calls = {each["auditID"]: each["verb"] for each in calls_since(real_cluster, before)}
    assert list(calls.values()) in ([], ["watch"]), calls
