from __future__ import annotations

from typing import Any

import pytest

from gputax.environments.environment import Described
from gputax.environments.image import limit_reasons
from gputax.environments.inside import Inside, inside_reasons
from gputax.environments.kubernetes import pod_facts, pod_reasons, xen_reasons
from gputax.errors import PreflightError, UsageError

UID = "c4329e87-929c-4b23-a733-c852f459269c"


def described(**host: Any) -> Described:
    facts = {
        "hostname": "p",
        "cgroup": f"/kubepods/pod{UID}/5bcb",
        "container_hints": {"own_pid_namespace": True},
        "cores_online": 8,
        **host,
    }
    allowance = {"quota_cpus": 2.0, "affinity": [0, 1, 2, 3]}
    return Described({"host": facts, "cpu_allowance": allowance, "devices": {}, "pid": 8})


def pod(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "uid": UID, "namespace": "gputax"},
        "spec": {"nodeName": "n", "containers": [{"image": "i", "resources": {"limits": {"cpu": "2"}}}]},
        "status": {
            "qosClass": "Guaranteed",
            "containerStatuses": [{"imageID": "sha256:1", "restartCount": 0}],
            **status,
        },
    }


def test_a_worker_in_its_pod_is_proven() -> None:
    assert pod_reasons(pod(), described()) == []
    facts = pod_facts(pod(), described())
    assert facts["pod_uid"] == UID
    assert (facts["node"], facts["image_digest"], facts["limits"]) == ("n", "sha256:1", {"cpu": "2"})


@pytest.mark.parametrize(
    ("live", "described", "reason"),
    [
        (pod(), described(hostname="laptop"), "host is 'laptop'"),
        (pod(), described(cgroup="/kubepods/pod0000/x"), "not that of pod"),
        (pod(), described(container_hints={"own_pid_namespace": False}), "not in a container"),
        (pod(qosClass="Burstable"), described(), "Burstable"),
        (pod(containerStatuses=[{"restartCount": 2}]), described(), "restarted 2 times"),
    ],
)
def test_what_speaks_against_it_is_reported(live: dict[str, Any], described: Described, reason: str) -> None:
    (only,) = pod_reasons(live, described)
    assert reason in only


def test_a_systemd_cgroup_and_a_cgroup_namespace_are_no_reason() -> None:
    systemd = f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-5.scope"
    assert pod_reasons(pod(), described(cgroup=systemd)) == []
    assert pod_reasons(pod(), described(cgroup="/")) == []


@pytest.mark.parametrize(
    ("quota", "cpus", "holds"), [(2.0, 2, True), (None, 4, True), (None, 2, False), (2.5, 2, False), (8.0, 4, True)]
)
def test_a_limit_is_a_quota_or_an_affinity_of_that_size(quota: float | None, cpus: int, holds: bool) -> None:
    described = Described({"cpu_allowance": {"quota_cpus": quota, "affinity": [0, 1, 2, 3]}})
    assert (limit_reasons(described, cpus) == []) is holds


@pytest.mark.parametrize(
    ("host", "guest"),
    [
        ({"hypervisor_type": "xen"}, True),
        ({"hypervisor_type": "xen", "xen_capabilities": "control_d"}, False),
        ({"hypervisor_type": "kvm"}, False),
        ({}, False),
    ],
)
def test_only_a_xen_guest_is_one(host: dict[str, Any], guest: bool) -> None:
    assert (xen_reasons(Described({"host": host})) == []) is guest


def test_the_facts_of_a_guest_are_with_those_of_its_pod() -> None:
    guest = Described({"host": {"hypervisor_type": "xen", "xen_guest_type": "PV", "emulated": True}})
    facts = pod_facts({}, guest)
    assert (facts["hypervisor_type"], facts["xen_guest_type"], facts["emulated"]) == ("xen", "PV", True)
    assert "emulated" not in pod_facts({}, Described({"host": {}}))


def test_a_pod_seen_from_within_knows_itself() -> None:
    environ = {"GPUTAX_POD": "p", "GPUTAX_POD_UID": UID}
    assert inside_reasons(environ, described()) == []
    assert "GPUTAX_POD_UID is not set" in inside_reasons({}, described())[0]
    allowance = {"quota_cpus": None, "affinity": list(range(8))}
    unlimited = Described({**described().to_dict(), "cpu_allowance": allowance})
    assert "no CPU limit" in inside_reasons(environ, unlimited)[0]


def test_inside_is_for_pods_and_a_tenant_needs_its_proxy() -> None:
    with pytest.raises(UsageError, match="bare is not one"):
        Inside("bare")
    with pytest.raises(PreflightError, match="does not know its node's GPU proxy"):
        Inside("k8s+proxy", environ={}).start()


def test_the_evidence_of_a_pod_that_is_no_xen_guest_refuses() -> None:
    environ = {"GPUTAX_POD": "p", "GPUTAX_POD_UID": UID, "GPUTAX_NODE": "n"}
    evidence = Inside("k8s+xen", environ=environ).evidence(described())
    assert (evidence.layer, evidence.active) == ("xen", False)
    assert evidence.reasons == ("the node is not a Xen guest: /sys/hypervisor/type is missing",)
