"""What is asked of a node, what it must show before a technique counts as on, and what that leaves a tenant; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gputax.kubernetes.nodes import MIG_STATE_LABEL, NodeFacts
from gputax.plan.techniques import Entitlement
from gputax.sharing.flavours.mig_profiles import share_of

# GPU operator: `pending`, perhaps `rebooting`, then one of `success` and `failed`.
MIG_DONE, MIG_FAILED = "success", "failed"
WHOLE = Entitlement("the whole device", 1.0)
IN_TURNS = Entitlement("up to all of it, in turns; no cap on memory", 1.0)
BEHIND_THE_PROXY = Entitlement("up to all of it, through the proxy", 1.0)


@dataclass(frozen=True)
class Wish:
    """What is asked of a node."""

    technique: str
    parts: int
    mig_profile: str = ""
    context: str = ""
    """The kubeconfig's context, which on GKE names the cluster."""


@dataclass(frozen=True)
class Offer:
    """One technique in one installation, for so many tenants."""

    technique: str
    flavour: str
    resource: str
    """What a tenant's pod asks one of."""
    least: int
    """So many of it must be allocatable."""
    entitlement: Entitlement
    labels: Mapping[str, str | None] = field(default_factory=dict)
    """What is set on the node (None: removed) to switch it."""
    shows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Labels that the node itself must then show, each with the values that are right; an empty one may be absent."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Files that the device plugin's ConfigMap must hold."""
    host_ipc: bool = False
    on_demand: bool = False
    """The resource appears only when pods wait for it (nos): allocatable is not asked before."""
    replicas: int = 1
    """Into how many shares the device is divided; the caps of MPS follow from it."""
    sm_percent: float | None = None
    """The cap on a tenant's part of the SMs; None where there is none."""
    memory_mb: float | None = None
    """The cap on a tenant's device memory; None where there is none or the device's size is unknown."""
    caps_memory: bool = False
    profile: str = ""
    """MIG's profile."""
    refusal: str = ""
    """Why this installation can never offer it here; empty where it can."""
    refusal_step: str = ""

    def limits(self) -> dict[str, object]:
        """Return what is recorded as the effective limits; "MPS" alone means three different things."""
        return {
            "flavour": self.flavour,
            "resource": self.resource,
            "replicas": self.replicas,
            "sm_percent": self.sm_percent,
            "memory_cap_mb": self.memory_mb,
            "profile": self.profile or None,
        }


def unmet(node: NodeFacts, offer: Offer) -> list[str]:
    """Say what the node does not show yet of the technique; empty: it is on, as far as the cluster tells."""
    reasons = []
    for name, value in offer.labels.items():
        if node.labels.get(name) != value:
            reasons.append(f"{name} is {node.label(name) or 'not set'}, not {value or 'removed'}")
    for name, right in offer.shows.items():
        if node.label(name) not in right:
            wanted = " or ".join(each or "not set" for each in right)
            reasons.append(f"{name} is {node.label(name) or 'not set'}, not {wanted}")
    offered = node.offered(offer.resource)
    if offered < offer.least and not offer.on_demand:
        reasons.append(f"it offers {offered} {offer.resource}, {offer.least} are needed")
    return reasons


def failure(node: NodeFacts, offer: Offer) -> str:
    """Say whether the switch has failed for good, in the cluster's words; empty where it may still come."""
    if MIG_DONE in offer.shows.get(MIG_STATE_LABEL, ()) and node.label(MIG_STATE_LABEL) == MIG_FAILED:
        return f"{MIG_STATE_LABEL} is {MIG_FAILED}: the MIG manager could not apply the configuration"
    return ""


def mps_share(replicas: int, memory_mb: float | None) -> Entitlement:
    """Return what MPS with NVIDIA's caps leaves a tenant: also when it is alone."""
    percent = 100 // replicas
    memory = f"{memory_mb / 1024:.1f} GB" if memory_mb else f"1/{replicas} of the memory"
    return Entitlement(f"{percent} % of the SMs, {memory}", percent / 100)


def mig_share(profile: str, node: NodeFacts) -> Entitlement:
    """Return what a MIG slice is."""
    return Entitlement(profile, share_of(profile, node))
