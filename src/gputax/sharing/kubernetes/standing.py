"""A technique that a node already offers: nothing is switched, so other users are not affected."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gputax.errors import PreflightError
from gputax.kubernetes import nodes as names
from gputax.kubernetes.client import Cluster
from gputax.kubernetes.nodes import SHARED_RESOURCE, NodeFacts
from gputax.kubernetes.objects import GPU_RESOURCE
from gputax.plan.options import EnvironmentOptions
from gputax.sharing.flavours.flavour import offer_for
from gputax.sharing.flavours.offer import Offer, Wish, unmet
from gputax.sharing.kubernetes.nodes import gpu_nodes

# With MIG's strategy `single` a slice is named like a GPU; feature discovery appends its profile to the product.
_SLICE = re.compile(r"-MIG-(\d+g\.\d+gb)")


@dataclass(frozen=True)
class Standing:
    """A node, and how it offers the technique."""

    node: str
    offer: Offer


def find_standing(cluster: Cluster, technique: str, options: EnvironmentOptions) -> Standing:
    """Return the first GPU node that offers the technique; raise with what is missing on each node."""
    missing = {}
    for node in gpu_nodes(cluster, options.node):
        offer = standing_offer(node, Wish(technique, 1, options.mig_profile, cluster.context), options.sharing_flavour)
        reasons = [offer.refusal] if offer.refusal else unmet(node, offer)
        if not reasons:
            return Standing(node.name, offer)
        missing[node.name] = "; ".join(reasons)
    raise PreflightError(
        f"no node offers {technique} now: " + ". ".join(f"{name}: {words}" for name, words in missing.items()),
        where=f"environment k8s+{technique}",
        next_step=f"gputax share --env k8s --tech {technique} switches the node and restores it; "
        "docs/sharing.md has the manual steps",
    )


def standing_offer(node: NodeFacts, wish: Wish, flavour: str = "auto") -> Offer:
    """Return what the node must show for the technique, with the number of shares that it reports; pure."""
    profile = wish.mig_profile or _profile_of_a_slice(node) if wish.technique == "mig" else ""
    offer = offer_for(node, replace(wish, parts=_shares(node, wish.technique), mig_profile=profile), flavour)
    unnamed = offer.resource == SHARED_RESOURCE and not node.offered(SHARED_RESOURCE)
    refusal = offer.refusal
    if wish.technique == "mig" and offer.resource == GPU_RESOURCE and not (profile or refusal):
        refusal = f"{names.PRODUCT_LABEL} is {node.label(names.PRODUCT_LABEL) or 'not set'}, which is not a MIG slice"
    return replace(
        offer,
        # Without `renameByDefault` the shares are named like whole GPUs; only the labels distinguish them.
        resource=GPU_RESOURCE if unnamed else offer.resource,
        least=1,
        # The plugin's configuration file does not matter here; the node shows its effect.
        labels={name: value for name, value in offer.labels.items() if name == names.NOS_LABEL},
        config={},
        refusal=refusal,
    )


def _shares(node: NodeFacts, technique: str) -> int:
    """Return the number of shares that the node reports; 1 for MIG."""
    labels = [node.label(name) for name in (names.REPLICAS_LABEL, names.GKE_CLIENTS)]
    return max((int(text) for text in labels if text.isdigit() and technique != "mig"), default=1) or 1


def _profile_of_a_slice(node: NodeFacts) -> str:
    found = _SLICE.search(node.label(names.PRODUCT_LABEL))
    return found[1] if found else ""
