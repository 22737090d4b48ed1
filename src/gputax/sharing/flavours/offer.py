"""How a node offers a technique: the labels to set, the state to wait for, and each tenant's share; pure."""

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
    """The requested technique and number of parts."""

    technique: str
    parts: int
    mig_profile: str = ""
    context: str = ""
    """The kubeconfig's context, which on GKE names the cluster."""


@dataclass(frozen=True)
class Offer:
    """One technique in one installation, for a given number of tenants."""

    technique: str
    flavour: str
    resource: str
    """The resource of which a tenant's pod requests one."""
    least: int
    """The amount of it that must be allocatable."""
    entitlement: Entitlement
    labels: Mapping[str, str | None] = field(default_factory=dict)
    """The labels to set on the node to switch it; None removes a label."""
    shows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Labels that the node must then show, each with its valid values; an empty value means it may be absent."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Files that the device plugin's ConfigMap must contain."""
    host_ipc: bool = False
    on_demand: bool = False
    """The resource appears only when pods wait for it (nos), so allocatable is not checked before."""
    replicas: int = 1
    """The number of shares of the device; it determines the caps of MPS."""
    sm_percent: float | None = None
    """The cap on a tenant's share of the SMs; None if there is none."""
    memory_mb: float | None = None
    """The cap on a tenant's device memory; None if there is none or the device's size is unknown."""
    caps_memory: bool = False
    profile: str = ""
    """The MIG profile."""
    refusal: str = ""
    """Why this installation cannot offer it here; empty if it can."""
    refusal_step: str = ""

    def limits(self) -> dict[str, object]:
        """Return the effective limits for the record; "MPS" alone could mean three different setups."""
        return {
            "flavour": self.flavour,
            "resource": self.resource,
            "replicas": self.replicas,
            "sm_percent": self.sm_percent,
            "memory_cap_mb": self.memory_mb,
            "profile": self.profile or None,
        }


def unmet(node: NodeFacts, offer: Offer) -> list[str]:
    """List what the node does not show yet; empty if the technique is on, as far as the cluster reports."""
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
        reasons.append(f"it offers {offered} {offer.resource}, but {offer.least} are needed")
    return reasons


def failure(node: NodeFacts, offer: Offer) -> str:
    """Return why the switch has failed for good; empty if it may still succeed."""
    if MIG_DONE in offer.shows.get(MIG_STATE_LABEL, ()) and node.label(MIG_STATE_LABEL) == MIG_FAILED:
        return f"{MIG_STATE_LABEL} is {MIG_FAILED}: the MIG manager could not apply the configuration"
    return ""


def mps_share(replicas: int, memory_mb: float | None) -> Entitlement:
    """Return a tenant's share under MPS with NVIDIA's caps, which also apply to a single tenant."""
    percent = 100 // replicas
    memory = f"{memory_mb / 1024:.1f} GB" if memory_mb else f"1/{replicas} of the memory"
    return Entitlement(f"{percent} % of the SMs, {memory}", percent / 100)


def mig_share(profile: str, node: NodeFacts) -> Entitlement:
    """Return the share of a MIG slice."""
    return Entitlement(profile, share_of(profile, node))
