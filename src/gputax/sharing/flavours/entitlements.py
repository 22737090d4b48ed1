"""What each technique leaves a tenant of the device, in words and as a part of it; pure."""

from __future__ import annotations

from gputax.kubernetes.nodes import NodeFacts
from gputax.plan.techniques import Entitlement
from gputax.sharing.flavours.mig_profiles import share_of

WHOLE = Entitlement("the whole device", 1.0)
IN_TURNS = Entitlement("up to all of it, in turns; no cap on memory", 1.0)
BEHIND_THE_PROXY = Entitlement("up to all of it, through the proxy", 1.0)


def mps_share(replicas: int, memory_mb: float | None) -> Entitlement:
    """Return what MPS with NVIDIA's caps leaves a tenant: also when it is alone."""
    percent = 100 // replicas
    memory = f"{memory_mb / 1024:.1f} GB" if memory_mb else f"1/{replicas} of the memory"
    return Entitlement(f"{percent} % of the SMs, {memory}", percent / 100)


def mig_share(profile: str, node: NodeFacts) -> Entitlement:
    """Return what a MIG slice is."""
    return Entitlement(profile, share_of(profile, node))
