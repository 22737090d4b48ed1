"""A technique that a node has already is taken as it is, whoever set it up, and one that it has not is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputax.kubernetes.nodes import NodeFacts
from gputax.sharing.kubernetes.environment import standing_offer
from gputax.sharing.offer import Wish, unmet

A100 = {"nvidia.com/gpu.memory": "81920", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
GKE = {"cloud.google.com/gke-accelerator": "nvidia-l4"}


def node(labels: dict[str, str], allocatable: dict[str, str]) -> NodeFacts:
    return NodeFacts("n", {**A100, **labels}, {}, allocatable)


def shares(technique: str, count: int) -> dict[str, str]:
    return {"nvidia.com/gpu.sharing-strategy": technique, "nvidia.com/gpu.replicas": str(count)}


def lacking(technique: str, found: NodeFacts) -> str:
    offer = standing_offer(found, Wish(technique, 1))
    return offer.refusal or "; ".join(unmet(found, offer))


HAS: dict[str, tuple[str, NodeFacts, str]] = {
    "shares of the owner's own making": (
        "time-slicing",
        node(
            {**shares("time-slicing", 4), "nvidia.com/device-plugin.config": "the-owner's"},
            {"nvidia.com/gpu.shared": "4"},
        ),
        "nvidia.com/gpu.shared",
    ),
    "shares under the name of a whole GPU": ("mps", node(shares("mps", 5), {"nvidia.com/gpu": "5"}), "nvidia.com/gpu"),
    "an operator's slices among others": (
        "mig",
        node(
            {"nvidia.com/mig.config": "all-balanced", "nvidia.com/mig.config.state": "success"},
            {"nvidia.com/mig-1g.10gb": "2", "nvidia.com/mig-2g.20gb": "1"},
        ),
        "nvidia.com/mig-1g.10gb",
    ),
    "slices that are called GPUs": (
        "mig",
        node(
            {"nvidia.com/mig.strategy": "single", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-2g.20gb"},
            {"nvidia.com/gpu": "3"},
        ),
        "nvidia.com/gpu",
    ),
    "a node pool of GKE": (
        "mps",
        node(
            {
                **GKE,
                "cloud.google.com/gke-gpu-sharing-strategy": "mps",
                "cloud.google.com/gke-max-shared-clients-per-gpu": "3",
            },
            {"nvidia.com/gpu": "3"},
        ),
        "nvidia.com/gpu",
    ),
    "nos, which cuts when a pod asks": (
        "mps",
        node({"nos.nebuly.com/gpu-partitioning": "mps"}, {}),
        "nvidia.com/gpu-80gb",
    ),
}


@pytest.mark.parametrize("case", HAS)
def test_what_the_node_has_is_taken_as_it_is(case: str) -> None:
    technique, found, resource = HAS[case]
    assert lacking(technique, found) == ""
    offer = standing_offer(found, Wish(technique, 1))
    assert offer.resource == resource
    assert not offer.config, "nothing is changed"


LACKS: dict[str, tuple[str, NodeFacts, str]] = {
    "a whole GPU": ("mps", node(shares("none", 1), {"nvidia.com/gpu": "1"}), "sharing-strategy is none, not mps"),
    "the other technique": (
        "mps",
        node(shares("time-slicing", 4), {"nvidia.com/gpu.shared": "4"}),
        "sharing-strategy is time-slicing, not mps",
    ),
    "shares without the labels that say of what": (
        "time-slicing",
        node({}, {"nvidia.com/gpu.shared": "4"}),
        "sharing-strategy is not set",
    ),
    "labels without shares": ("mps", node(shares("mps", 4), {}), "it offers 0 nvidia.com/gpu, but 1 are needed"),
    "slices that are not there yet": (
        "mig",
        node(
            {"nvidia.com/mig.config": "all-1g.10gb", "nvidia.com/mig.config.state": "pending"},
            {"nvidia.com/mig-1g.10gb": "7"},
        ),
        "mig.config.state is pending, not success",
    ),
    "a whole GPU where slices are called GPUs": (
        "mig",
        node({"nvidia.com/mig.strategy": "single"}, {"nvidia.com/gpu": "1"}),
        "gpu.product is NVIDIA-A100-SXM4-80GB, which is not a MIG slice",
    ),
    "a node pool for the other technique": (
        "mps",
        node({**GKE, "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing"}, {"nvidia.com/gpu": "3"}),
        "gke-gpu-sharing-strategy is time-sharing, not mps",
    ),
    "nos for the other technique": (
        "mps",
        node({"nos.nebuly.com/gpu-partitioning": "mig"}, {}),
        "gpu-partitioning is mig, not mps",
    ),
}


@pytest.mark.parametrize("case", LACKS)
def test_what_the_node_lacks_is_named(case: str) -> None:
    technique, found, words = LACKS[case]
    assert words in lacking(technique, found)


def test_the_caps_of_mps_follow_from_the_shares_that_the_node_tells() -> None:
    offer = standing_offer(node(shares("mps", 5), {"nvidia.com/gpu.shared": "5"}), Wish("mps", 1))
    assert (offer.replicas, offer.sm_percent, offer.memory_mb) == (5, 20, 81920 / 5)


def test_the_profile_of_a_slice_is_read_from_the_product_or_taken_from_the_user() -> None:
    _, single, _ = HAS["slices that are called GPUs"]
    assert standing_offer(single, Wish("mig", 1)).profile == "2g.20gb"
    _, mixed, _ = HAS["an operator's slices among others"]
    named = standing_offer(mixed, replace(Wish("mig", 1), mig_profile="2g.20gb"))
    assert (named.resource, unmet(mixed, named)) == ("nvidia.com/mig-2g.20gb", [])
