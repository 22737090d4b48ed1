"""How a node offers a technique: labels to set, the state to wait for, each tenant's share, the MIG profile; pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gputax.errors import UsageError
from gputax.kubernetes.nodes import MIG_RESOURCE, MIG_STATE_LABEL, PRODUCT_LABEL, NodeFacts
from gputax.plan.environment import K8S
from gputax.plan.techniques import TECHNIQUES, Entitlement
from gputax.worker.tenant.info import MPS_MEMORY_VARIABLE, MPS_PERCENTAGE_VARIABLE

if TYPE_CHECKING:
    from gputax.sharing.evidence import Seen

# An A100 with 80 GB; used if the device's memory is unknown.
DEFAULT_MEMORY_MB = 80 * 1024
_PROFILE = re.compile(r"(\d+)g\.(\d+)gb(\+[a-z.]+|-[a-z]+)?")


@dataclass(frozen=True)
class Geometry:
    """How a GPU is partitioned: compute slices, memory slices, and what each instance size takes of both."""

    slices: int
    memory_slices: int
    sizes: dict[int, int]
    """Memory slices by compute slices."""


# Names that differ from the arithmetic: NVIDIA calls 35.1 of the H200's 140.4 GiB 35, but 70.2 GiB 71.
ODD_NAMES = {("H200", 2): "2g.35gb"}
SEVEN = Geometry(7, 8, {1: 1, 2: 2, 3: 4, 7: 8})
FOUR = Geometry(4, 4, {1: 1, 2: 2, 4: 4})


def geometry(node: NodeFacts) -> Geometry:
    """Return how the node's GPU is partitioned; only the A30 has four slices."""
    return FOUR if "A30" in _words(node) else SEVEN


def instances(size: int, cut: Geometry) -> int:
    """Return how many instances of a size fit."""
    return min(cut.slices // size, cut.memory_slices // cut.sizes[size])


def chosen_profile(node: NodeFacts, parts: int, wanted: str = "") -> str:
    """Return the requested profile, one that the node already offers, or the largest that fits."""
    if wanted:
        if not _PROFILE.fullmatch(wanted):
            raise UsageError(f"{wanted!r} is not a MIG profile", next_step="e.g. --mig-profile 1g.10gb")
        return wanted
    there = [name for name in node.allocatable if name.startswith(MIG_RESOURCE) and node.offered(name) >= parts]
    if there:
        return sorted(there)[0].removeprefix(MIG_RESOURCE)
    cut = geometry(node)
    fitting = [size for size in cut.sizes if instances(size, cut) >= parts]
    if not fitting:
        raise UsageError(
            f"MIG partitions this GPU into at most {cut.slices} slices, but {parts} tenants are requested",
            where=f"node {node.name}",
            next_step=f"use --tenants up to {cut.slices}, or remove mig from --tech",
        )
    size = max(fitting)
    odd = [name for (product, slices), name in ODD_NAMES.items() if product in _words(node) and slices == size]
    if odd:
        return odd[0]
    memory_gb = math.ceil((node.memory_mb or DEFAULT_MEMORY_MB) / 1024 * cut.sizes[size] / cut.memory_slices)
    return f"{size}g.{memory_gb}gb"


def _words(node: NodeFacts) -> list[str]:
    return node.label(PRODUCT_LABEL).split("-")


def share_of(profile: str, node: NodeFacts) -> float | None:
    """Return a profile's fraction of the device's compute slices."""
    found = _PROFILE.fullmatch(profile)
    return int(found[1]) / geometry(node).slices if found else None


def memory_of_mb(profile: str) -> float | None:
    """Return the memory in a profile's name; the driver reports slightly less."""
    found = _PROFILE.fullmatch(profile)
    return int(found[2]) * 1024.0 if found else None


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
    counted: bool = True
    """A tenant's pod requests one of the resource; otherwise an annotation says what it gets."""
    amounts: Mapping[str, str] = field(default_factory=dict)
    """Further resources of a tenant's pod: percentages of the SMs and of the memory."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables of a tenant's container: an MPS client may lower its caps by them."""
    of_tenants: Mapping[int, Offer] = field(default_factory=dict)
    """By number, the offers of tenants that asked for shares of their own; the others have this one."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    scheduler: str = ""
    """The scheduler that a tenant's pod names; empty: the cluster's own."""
    refusal: str = ""
    """Why this installation cannot offer it here; empty if it can."""
    refusal_step: str = ""

    def of_tenant(self, number: int) -> Offer:
        """Return the offer of one tenant."""
        return self.of_tenants.get(number, self)

    def limits(self) -> dict[str, object]:
        """Return the effective limits for the record; "MPS" alone could mean three different setups."""
        own = {str(number): each.limits() for number, each in self.of_tenants.items()}
        return {
            **({"tenants": own} if own else {}),
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
    return mps_entitlement(100 // replicas, memory_mb, f"1/{replicas} of the memory")


def mps_entitlement(percent: int, memory_mb: float | None, unknown: str = "") -> Entitlement:
    """Return the share of an MPS client with these caps; `unknown` says what its cap on memory is, if there is one."""
    memory = f", {memory_mb / 1024:.1f} GB" if memory_mb else f", {unknown}" if unknown else "; no cap on memory"
    return Entitlement(f"{percent} % of the SMs{memory}", percent / 100)


def whole_percent(share: float) -> int:
    """Return a share as MPS takes it: whole percents, never more than was asked for."""
    return max(1, int(100.0 * share + 1e-6))


def mps_lowered(offer: Offer, share: float, whole_mb: float | None) -> Offer:
    """Return the offer of an MPS client that lowers its caps to a share of the device; it can never raise them."""
    percent = whole_percent(share)
    variables = {MPS_PERCENTAGE_VARIABLE: str(percent)}
    memory_mb = offer.memory_mb
    if offer.caps_memory and whole_mb:
        memory_mb = min(whole_mb * percent / 100.0, memory_mb or whole_mb)
        variables[MPS_MEMORY_VARIABLE] = f"0={int(memory_mb)}M"
    return replace(
        offer,
        entitlement=mps_entitlement(percent, memory_mb),
        sm_percent=float(percent),
        memory_mb=memory_mb,
        variables=variables,
    )


def mig_share(profile: str, node: NodeFacts) -> Entitlement:
    """Return the share of a MIG slice."""
    return Entitlement(profile, share_of(profile, node))


@dataclass(frozen=True)
class NodeTechnique:
    """A technique on a node of a cluster: its proof and, if no installation knows it, its offer."""

    reasons: Callable[[Sequence[Seen], NodeFacts, Offer], list[str]]
    """Returns why the tenants did not share the device by it."""
    offer: Callable[[NodeFacts, Wish], Offer] | None = None


def node_technique(name: str) -> NodeTechnique:
    """Return what the technique is on a node."""
    technique: NodeTechnique = TECHNIQUES[name].load(K8S)
    return technique
