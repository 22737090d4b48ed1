"""Fractions of a GPU by a library in the container or by a scheduler: HAMi, volcano-vgpu and KAI; pure.

HAMi and volcano-vgpu preload HAMi-core, which counts memory and delays launches; KAI places pods by their fraction and
limits nothing. What each sets in a container was read in its source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gputax.kubernetes.nodes import NodeFacts
from gputax.kubernetes.objects import GPU_RESOURCE
from gputax.plan.shares import Asked
from gputax.plan.techniques import Entitlement
from gputax.sharing.evidence import CAP_TOLERANCE, Seen, mib, same_gpu
from gputax.sharing.offer import WHOLE, NodeTechnique, Offer, Wish, mps_lowered, share_of, whole_percent

FRACTION = "fraction"
HAMI_ANNOTATION = "hami.io/node-nvidia-register"
VOLCANO_NUMBER, VOLCANO_CORES = "volcano.sh/vgpu-number", "volcano.sh/vgpu-cores"
VOLCANO_MEMORY = "volcano.sh/vgpu-memory-percentage"
KAI_QUEUE_LABEL, KAI_QUEUE = "kai.scheduler/queue", "default-queue"
KAI_FRACTION = "gpu-fraction"


@dataclass(frozen=True)
class Slicer:
    """One installation that gives tenants a fraction of a GPU: what a pod writes, and what its container then shows."""

    name: str
    divides: Callable[[NodeFacts], bool]
    resource: str
    """The resource of which a pod requests one; empty: the fraction is an annotation."""
    cores: str = ""
    """The resource that is a percentage of the SMs; empty: no share of compute can be asked for."""
    memory: str = ""
    """The resource that is a percentage of the memory."""
    annotation: str = ""
    """The annotation that is the fraction."""
    scheduler: str = ""
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    limits: bool = True
    """It sets limits in the container, so that without them nothing was limited."""

    def offer(self, node: NodeFacts, wish: Wish) -> Offer:
        """Return equal fractions of the device; `for_share` makes them unequal."""
        found = Offer(
            wish.technique,
            self.name,
            self.resource or GPU_RESOURCE,
            wish.parts if self.resource else 1,
            Entitlement("", None),
            replicas=wish.parts,
            scheduler=self.scheduler,
            pod_labels=dict(self.pod_labels),
            counted=bool(self.resource),
        )
        if wish.technique != FRACTION:
            why = f"{self.name} gives tenants fractions of a GPU, not {wish.technique}"
            return replace(found, refusal=why, refusal_step=f"use --tech {FRACTION}, or another --sharing-flavour")
        return self.for_share(found, 1.0 / wish.parts, node)

    def for_share(self, offer: Offer, share: float, node: NodeFacts) -> Offer:
        """Return the offer of a tenant that asks for this fraction."""
        if share >= 1.0 and self.annotation:  # a whole GPU is not a fraction: it is asked for as ever
            return replace(offer, entitlement=WHOLE, counted=True, annotations={})
        percent = max(1, round(100.0 * share))
        words = [f"{percent} % of the SMs" if self.cores else "up to all SMs", f"{percent} % of the memory"]
        return replace(
            offer,
            entitlement=Entitlement(", ".join(words), percent / 100.0 if self.cores else 1.0),
            amounts={name: str(percent) for name in (self.cores, self.memory) if name},
            annotations={self.annotation: f"{share:.4g}"} if self.annotation else {},
            sm_percent=float(percent) if self.cores else None,
            memory_mb=node.memory_mb * percent / 100.0 if node.memory_mb and self.limits else None,
            caps_memory=self.limits,
        )

    def asked(self, share: float) -> Asked:
        """Return what a tenant with this fraction asks for."""
        part = max(1, round(100.0 * share)) / 100.0 if self.limits else share
        return Asked(part if self.cores else None, part)


SLICERS: dict[str, Slicer] = {
    slicer.name: slicer
    for slicer in (
        Slicer(
            "hami", lambda node: HAMI_ANNOTATION in node.annotations, GPU_RESOURCE,
            "nvidia.com/gpucores", "nvidia.com/gpumem-percentage",
        ),
        Slicer(
            "volcano-vgpu", lambda node: VOLCANO_NUMBER in node.allocatable, VOLCANO_NUMBER,
            VOLCANO_CORES, VOLCANO_MEMORY, scheduler="volcano",
        ),
        # A scheduler: nothing on a node shows it, so it must be named.
        Slicer(
            "kai", lambda node: False, "", annotation=KAI_FRACTION, scheduler="kai-scheduler",
            pod_labels={KAI_QUEUE_LABEL: KAI_QUEUE}, limits=False,
        ),
    )
}  # fmt: skip


def fraction_reasons(seen: Sequence[Seen], node: NodeFacts, offer: Offer) -> list[str]:
    """A fraction: one GPU for all, and in each container the limits that the installation sets there."""
    slicer = SLICERS.get(offer.flavour)
    if slicer is None:
        return [f"{offer.flavour} does not give fractions of a GPU"]
    reasons = same_gpu(seen)
    for each in seen:
        who, limiter = f"tenant {each.number}", each.devices.get("limiter") or {}
        if not slicer.limits:
            if not limiter.get("gpu_portion") and not each.resources.get(GPU_RESOURCE):
                reasons.append(f"{who} was not placed by KAI: GPU_PORTION is not set in its container")
            continue
        asked = each.resources.get(slicer.cores)
        if asked is None:
            reasons.append(f"the pod of {who} did not ask for {slicer.cores}")
        elif _number(limiter.get("sm_limit")) != _number(asked):
            reasons.append(f"{who} asked for {asked} % of the SMs, CUDA_DEVICE_SM_LIMIT is {limiter.get('sm_limit')}")
        if not limiter.get("memory_limit"):
            reasons.append(f"{who} has no memory limit: CUDA_DEVICE_MEMORY_LIMIT_0 is not set")
        if not limiter.get("preloaded"):
            reasons.append(f"{who} does not load HAMi-core: /etc/ld.so.preload does not name libvgpu.so")
        reasons += _uncapped(each, node, _number(each.resources.get(slicer.memory)))
    return reasons


def _uncapped(tenant: Seen, node: NodeFacts, percent: float | None) -> list[str]:
    """Report a driver that shows a tenant more memory than its fraction: HAMi-core answers with the fraction."""
    total_mb = tenant.cuda.get("memory_total_mb")
    whole_mb = node.memory_mb or tenant.whole.get("memory_total_mb")
    if tenant.reached == "cpu" or percent is None or not whole_mb:
        return []
    cap_mb = float(whole_mb) * percent / 100.0
    if total_mb and total_mb <= CAP_TOLERANCE * cap_mb:
        return []
    return [f"tenant {tenant.number} is not limited to {mib(cap_mb)}: the driver reports {mib(total_mb)}"]


def _number(text: object) -> float | None:
    try:
        return float(str(text))
    except ValueError:
        return None


TECHNIQUE = NodeTechnique(fraction_reasons)


def offer_to(offer: Offer, share: float, node: NodeFacts) -> Offer:
    """Return the offer to one tenant that asks for this share; the same one where all tenants have the same."""
    if offer.flavour in SLICERS:
        return SLICERS[offer.flavour].for_share(offer, share, node)
    if offer.technique == "mps" and offer.sm_percent and whole_percent(share) < offer.sm_percent:
        return mps_lowered(offer, share, node.memory_mb)
    return offer


def asked_of(offer: Offer, share: float, node: NodeFacts) -> Asked:
    """Return what a tenant of this offer asks for, in parts of the whole device."""
    if offer.flavour in SLICERS:
        return SLICERS[offer.flavour].asked(share)
    match offer.technique:
        case "exclusive":
            return Asked(1.0, 1.0)
        case "time-slicing":
            return Asked(share, exact=False)
    compute = offer.sm_percent / 100.0 if offer.sm_percent else None
    if offer.technique == "mig":
        compute = share_of(offer.profile, node)
    memory = offer.memory_mb / node.memory_mb if offer.memory_mb and node.memory_mb else None
    return Asked(compute, memory)
