"""What `gputax verify` asks of a cluster, and what it prints."""

from __future__ import annotations

import io

from gputax.cli.verify import _node, write_mode
from gputax.doctor.mode import Mode
from gputax.environments.environment import Evidence
from gputax.environments.kubernetes import resource_claims
from gputax.places import Places
from gputax.plan.options import EnvironmentOptions
from tests.standins.kube_api import KubeApi


def test_the_node_of_the_pod_is_asked_how_it_shares_its_gpu(api: KubeApi) -> None:
    api.add_node("gpu-1", 1, {"nvidia.com/gpu.sharing-strategy": "time-slicing"})
    with Places(EnvironmentOptions()) as places:
        node, beside = _node(places, Evidence({"node": "gpu-1"}))
        assert node.label("nvidia.com/gpu.sharing-strategy") == "time-slicing"
        assert beside == ()
        assert _node(places, Evidence({"node": "gone"})) == (None, None)
        assert _node(places, Evidence()) == (None, None)


def test_claims_are_named_as_the_cluster_names_them() -> None:
    pod = {
        "spec": {"resourceClaims": [
            {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}, {"name": "shared", "resourceClaimName": "our-gpu"},
        ]},
        "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "pod-gpu-x7k2p"}]},
    }  # fmt: skip
    assert resource_claims(pod) == ["pod-gpu-x7k2p", "our-gpu"]
    assert resource_claims({"spec": {}}) == []


def test_the_answer_is_short_and_says_what_is_wrong() -> None:
    mode = Mode(
        "mps", "a client of MPS, capped at 33 % of the SMs", "33 %", True, "NVIDIA A100", ("pod",),
        {"SMs": "36 of 108"},
        "no other process", ("the driver reports 36 of 108 SMs",), ("the connection is lost",),
    )  # fmt: skip
    stream = io.StringIO()
    write_mode(mode, ["mps=50 was expected, this is mps=33%, pod"], "k8s+mps", 2.04, stream)
    assert stream.getvalue().splitlines() == [
        "gputax verify: k8s+mps (2.0 s)",
        "mps: a client of MPS, capped at 33 % of the SMs",
        "  device: NVIDIA A100",
        "  around it: pod",
        "  limits: SMs: 36 of 108",
        "  others: no other process",
        "  seen by: the driver reports 36 of 108 SMs",
        "✗ the connection is lost",
        "✗ mps=50 was expected, this is mps=33%, pod",
    ]
