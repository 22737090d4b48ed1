"""Evidence that tenants got their device by a claim: allocated, reserved for exactly them, one GPU for all; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gputax.environments.environment import Described, Evidence
from gputax.kubernetes.claims import DRIVER, Allocated, ClaimState, SliceDevice
from gputax.plan.techniques import TECHNIQUES
from gputax.sharing.dra.offer import node_of
from gputax.sharing.evidence import Seen, device_warning, larger_than, own_reasons
from gputax.sharing.offer import Offer, memory_of_mb, node_technique


@dataclass(frozen=True)
class Claimed:
    """What a tenant's pod has of its claim."""

    number: int
    pod_uid: str
    claim: ClaimState | None
    """None if the claim does not exist any more."""
    name: str
    """The name of the claim in the pod's spec; empty if it names none."""
    request: str = ""
    made_uid: str = ""
    """The uid of the claim when it was made; empty for a claim of somebody else."""

    @property
    def devices(self) -> tuple[Allocated, ...]:
        """The devices that the tenant got."""
        found = self.claim.allocated if self.claim else ()
        return tuple(each for each in found if self.request in ("", each.request))


def claim_evidence(
    offer: Offer,
    claimed: Sequence[Claimed],
    devices: Sequence[SliceDevice] | None,
    tenants: Sequence[Evidence],
    described: Sequence[Described],
) -> Evidence:
    """Compare what each tenant sees with its claim, the claims with each other, and the GPU with the technique."""
    known = {each.identity: each for each in devices or ()}
    seen = [
        Seen(each.number, evidence, worker.devices, _visible(each, worker, known))
        for each, evidence, worker in zip(claimed, tenants, described, strict=True)
    ]
    reasons = [*own_reasons(tenants), *claim_reasons(claimed), *sharing_reasons(offer.technique, claimed, known)]
    for each, tenant in zip(claimed, seen, strict=True):
        reasons += device_reasons(each, tenant, known)
    if not reasons:
        reasons += _technique_reasons(seen, claimed, known, offer)
    reached = {each.reached for each in seen}
    states = {each.claim.name: each.claim for each in claimed if each.claim is not None}
    facts = {
        "node": next((each.node for each in states.values() if each.node), None) or _nodes(tenants),
        "limits": offer.limits(),
        "claims": [each.facts() for each in states.values()],
        "device_ids": [[_named(device, known) for device in each.devices] for each in claimed],
        "resource_slices": "read" if devices is not None else "not permitted to list them",
        "driver_reports": [each.devices.get("cuda") for each in seen],
        "reaches_device": reached == {"cuda"},
    }
    warning = device_warning(reached, offer.technique)
    return Evidence.of(offer.technique, reasons, facts, warning=warning, list_reasons=True)


def claim_reasons(claimed: Sequence[Claimed]) -> list[str]:
    """List why the claims are not those of the tenants: gone, replaced, not allocated, or reserved for others too."""
    reasons = []
    pods = {each.pod_uid for each in claimed}
    told: set[str] = set()
    for each in claimed:
        who, claim = f"tenant {each.number}", each.claim
        if not each.name:
            reasons.append(f"the pod of {who} names no ResourceClaim")
            continue
        if claim is None:
            reasons.append(f"the ResourceClaim {each.name} of {who} was deleted during the measurement")
            continue
        if each.made_uid and claim.uid != each.made_uid:
            reasons.append(f"the ResourceClaim {each.name} of {who} was replaced during the measurement")
        if each.pod_uid not in {holder.uid for holder in claim.holders}:
            reasons.append(f"the ResourceClaim {each.name} is not reserved for the pod of {who}")
        if len(each.devices) != 1:
            reasons.append(f"{who} got {len(each.devices)} devices by {each.name}, not one")
        foreign = {device.driver for device in each.devices} - {DRIVER}
        if foreign:
            reasons.append(f"the device of {who} is of the driver {', '.join(sorted(foreign))}, not {DRIVER}")
        if each.name in told:
            continue
        told.add(each.name)
        if claim.ending:
            reasons.append(
                f"the ResourceClaim {each.name} was deleted during the measurement; it stays until its pods end"
            )
        others = [holder.name for holder in claim.holders if holder.uid not in pods]
        if others:
            reasons.append(f"the ResourceClaim {each.name} is also reserved for others: {', '.join(others)}")
    return reasons


def sharing_reasons(technique: str, claimed: Sequence[Claimed], known: Mapping[str, SliceDevice]) -> list[str]:
    """List why the tenants do not have one GPU: claims for themselves are served with GPUs for themselves."""
    got = [device for each in claimed for device in each.devices]
    if TECHNIQUES[technique].bound == "slice":
        if len({each.identity for each in got}) != len(got):
            return ["two tenants got the same slice"]
        parents = sorted({_gpu_of(each, known) for each in got})
        return [f"the slices are of different GPUs: {', '.join(parents)}"] if len(parents) > 1 else []
    different = sorted({_named(each, known) for each in got})
    if len(different) <= 1:
        return []
    claims = sorted({each.name for each in claimed})
    who = f"{len(claims)} claims got" if len(claims) > 1 else f"the ResourceClaim {claims[0]} got"
    return [f"{who} {len(different)} GPUs instead of one, so the tenants share nothing: {', '.join(different)}"]


def device_reasons(claimed: Claimed, tenant: Seen, known: Mapping[str, SliceDevice]) -> list[str]:
    """Compare the device that the cluster says with the one that the worker sees: a driver can prepare another."""
    if len(claimed.devices) != 1:
        return []
    device, who = claimed.devices[0], f"tenant {claimed.number}"
    published = known.get(device.identity)
    uuids = [str(each["uuid"]) for each in tenant.devices.get("gpus") or () if each.get("uuid")]
    if known and published is None:
        return [f"the device of {who}, {device.identity}, is in no ResourceSlice"]
    if uuids and published is not None and published.gpu and published.gpu not in uuids:
        return [f"{who} sees the GPU {', '.join(uuids)}, but its claim got {device.device} ({published.gpu})"]
    nodes = [str(each) for each in tenant.devices.get("nodes") or ()]
    wanted = f"/dev/nvidia{device.minor}"
    if device.minor and nodes and nodes != [wanted]:
        return [f"{who} has {', '.join(nodes)}, but its claim got {device.device}, which is {wanted}"]
    return []


def _technique_reasons(
    seen: Sequence[Seen], claimed: Sequence[Claimed], known: Mapping[str, SliceDevice], offer: Offer
) -> list[str]:
    device = known.get(claimed[0].devices[0].identity) if claimed else None
    node = node_of(str(seen[0].evidence.fact("node") or "") if seen else "", device)
    if offer.technique != "mig":
        reasons = _strategy_reasons(claimed, offer)
        return [*reasons, *node_technique(offer.technique).reasons(seen, node, offer)]
    reasons = []
    for each, tenant in zip(claimed, seen, strict=True):
        slice_ = known.get(each.devices[0].identity)
        profile = slice_.profile if slice_ else ""
        if profile and offer.profile and profile != offer.profile:
            reasons.append(f"tenant {each.number} has the profile {profile}, not {offer.profile}")
        if slice_ is not None and slice_.kind != "mig":
            reasons.append(f"tenant {each.number} has {each.devices[0].device}, which is not a MIG slice")
        reasons += larger_than(tenant, memory_of_mb(profile or offer.profile))
    return reasons


def _strategy_reasons(claimed: Sequence[Claimed], offer: Offer) -> list[str]:
    """Report a claim whose allocation has other parameters than the technique needs."""
    wrong = []
    for claim in {each.claim.name: each.claim for each in claimed if each.claim is not None}.values():
        strategy = str(claim.sharing.get("strategy") or "")
        allowed = {"mps": ("MPS",), "time-slicing": ("", "TimeSlicing"), "exclusive": ("",)}[offer.technique]
        if strategy not in allowed:
            wrong.append(f"the ResourceClaim {claim.name} was allocated with the strategy {strategy or 'none'}")
    return wrong


def _visible(claimed: Claimed, worker: Described, known: Mapping[str, SliceDevice]) -> str:
    """Return the ids of the tenant's devices: as its container says, or by the ResourceSlice.

    NVIDIA's driver sets NVIDIA_VISIBLE_DEVICES to `void`, because the container gets its devices by CDI.
    """
    said = str(worker.host.get("visible_devices") or "")
    if said.startswith(("GPU-", "MIG-")):
        return said
    published = [known[each.identity] for each in claimed.devices if each.identity in known]
    return ",".join(each.uuid for each in published if each.uuid)


def _gpu_of(device: Allocated, known: Mapping[str, SliceDevice]) -> str:
    published = known.get(device.identity)
    return (published.gpu if published else "") or f"{device.pool}/gpu-{device.minor or '?'}"


def _named(device: Allocated, known: Mapping[str, SliceDevice]) -> str:
    published = known.get(device.identity)
    return f"{device.pool}/{device.device}" + (f" ({published.uuid})" if published and published.uuid else "")


def _nodes(tenants: Sequence[Evidence]) -> str | None:
    names: list[Any] = sorted({str(each.fact("node")) for each in tenants})
    return ", ".join(names) or None
