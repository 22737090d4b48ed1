"""nos: a label selects the partitioning, and the resource appears when pods request it; pure."""

from __future__ import annotations

from dataclasses import replace

from gputax.kubernetes import nodes as names
from gputax.kubernetes.nodes import MIG_RESOURCE, NodeFacts
from gputax.kubernetes.objects import GPU_RESOURCE
from gputax.plan.techniques import Entitlement
from gputax.sharing.flavours.device_plugin import by_file
from gputax.sharing.flavours.mig_profiles import chosen_profile, memory_of_mb
from gputax.sharing.flavours.offer import Offer, Wish, mig_share


def divides(node: NodeFacts) -> bool:
    """Whether the node's labels show nos."""
    return names.NOS_LABEL in node.labels


def nos_offer(node: NodeFacts, wish: Wish) -> Offer:
    """Return the technique under nos, selected by a label; the resource appears when pods request it."""
    if wish.technique not in ("mps", "mig"):
        found = by_file(node, wish, "nos")
        freed: dict[str, str | None] = {names.NOS_LABEL: None} if names.NOS_LABEL in node.labels else {}
        return replace(found, labels={**found.labels, **freed})
    profile = chosen_profile(node, wish.parts, wish.mig_profile)
    size = profile.partition(".")[2]
    mps = wish.technique == "mps"
    # nos caps only the memory: a tenant may use every SM.
    capped = Entitlement(f"up to all SMs, {size.removesuffix('gb')} GB", 1.0)
    return Offer(
        wish.technique,
        "nos",
        f"{GPU_RESOURCE}-{size}" if mps else f"{MIG_RESOURCE}{profile}",
        wish.parts,
        capped if mps else mig_share(profile, node),
        labels={names.NOS_LABEL: wish.technique},
        host_ipc=mps,
        on_demand=True,
        replicas=wish.parts if mps else 1,
        memory_mb=memory_of_mb(profile),
        caps_memory=mps,
        profile="" if mps else profile,
    )
