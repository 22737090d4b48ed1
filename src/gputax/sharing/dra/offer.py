"""Which claim gives a technique to so many tenants, and what each may then use; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gputax.errors import PreflightError, UsageError
from gputax.kubernetes.claims import (
    DRIVER,
    GPU_CLASS,
    INTERVALS,
    MIG_CLASS,
    REQUEST,
    ClaimState,
    SliceDevice,
    mps_parameters,
    time_slicing_parameters,
)
from gputax.kubernetes.nodes import MEMORY_LABEL, PRODUCT_LABEL, NodeFacts, quantity
from gputax.sharing.flavours import LEAST_REPLICAS, refuse_too_many_mps_clients
from gputax.sharing.offer import (
    IN_TURNS,
    WHOLE,
    Offer,
    chosen_profile,
    memory_of_mb,
    mig_share,
    mps_entitlement,
    whole_percent,
)

FLAVOUR = "dra"
PARENT = f"{DRIVER}/parentUUID"


@dataclass(frozen=True)
class Asked:
    """What a claim asks for, and the offer that its tenants then have."""

    offer: Offer
    requests: tuple[str, ...] = (REQUEST,)
    selectors: tuple[str, ...] = ()
    same: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def request_of(self, number: int) -> str:
        """Return the request whose device the n-th tenant gets; the only one is shared by all."""
        return self.requests[number - 1] if len(self.requests) > 1 else self.requests[0]


@dataclass(frozen=True)
class Choice:
    """What the user chose, and what is known of the devices."""

    mig_profile: str = ""
    time_slice: str = ""
    node: str = ""
    gpu: str = ""
    """The UUID of the GPU that earlier cells used: all cells must use the same."""
    devices: Sequence[SliceDevice] | None = None
    """None if we may not read ResourceSlices."""
    most: float = 0.0
    """The largest share that a tenant will ask for, where they are unequal; 0: the tenants have equal shares."""


def asked_for(technique: str, parts: int, choice: Choice) -> Asked:
    """Return the claim for a technique; raise if the cluster is known not to have such devices."""
    if choice.time_slice and choice.time_slice not in INTERVALS:
        raise UsageError(
            f"{choice.time_slice!r} is not a time slice of NVIDIA's driver",
            next_step=f"use --time-slice with one of {', '.join(INTERVALS)}",
        )
    devices = _usable(choice)
    if technique == "mig":
        return _mig(parts, choice, devices)
    gpus = None if devices is None else [each for each in devices if each.kind != "mig"]
    if gpus is not None and not gpus:
        raise _no_devices("no whole GPU", choice)
    memory_mb = min((each.memory_mb for each in gpus or () if each.memory_mb), default=None)
    selectors = (f"device.attributes['{DRIVER}'].uuid == '{choice.gpu}'",) if choice.gpu else ()
    match technique:
        case "exclusive":
            return Asked(Offer("exclusive", FLAVOUR, GPU_CLASS, 1, WHOLE), selectors=selectors)
        case "time-slicing":
            parameters = time_slicing_parameters(choice.time_slice) if choice.time_slice else {}
            offer = Offer("time-slicing", FLAVOUR, GPU_CLASS, 1, IN_TURNS, replicas=parts)
            return Asked(offer, selectors=selectors, parameters=parameters)
        case "mps":
            refuse_too_many_mps_clients(NodeFacts(choice.node or "of the claim"), parts)
            replicas = max(LEAST_REPLICAS, parts)
            percent = whole_percent(choice.most) if choice.most else 100 // replicas
            part = choice.most or 1.0 / replicas
            cap_mb = memory_mb * part if memory_mb else None
            offer = mps_offer(percent, cap_mb, replicas)
            return Asked(offer, selectors=selectors, parameters=mps_parameters(percent, cap_mb))
    raise UsageError(
        f"the technique {technique} does not exist with --sharing-flavour {FLAVOUR}",
        next_step="use --tech exclusive,time-slicing,mps,mig",
    )


def mps_offer(percent: int, cap_mb: float | None, replicas: int) -> Offer:
    """Return the offer of MPS with these caps."""
    return Offer(
        "mps", FLAVOUR, GPU_CLASS, 1, mps_entitlement(percent, cap_mb),
        replicas=replicas, sm_percent=percent, memory_mb=cap_mb, caps_memory=cap_mb is not None,
    )  # fmt: skip


def offer_of(claim: ClaimState, technique: str) -> Offer:
    """Return the offer of a claim that its owner made; raise if it asks for another technique."""
    strategy = str(claim.sharing.get("strategy") or "")
    found = {"MPS": "mps", "TimeSlicing": "time-slicing"}.get(strategy, "")
    if technique == "mps" and found == "mps":
        config = claim.sharing.get("mpsConfig") or {}
        percent = int(config.get("defaultActiveThreadPercentage") or 100)
        limit = config.get("defaultPinnedDeviceMemoryLimit")
        return mps_offer(percent, quantity(str(limit)) / 2**20 if limit else None, max(1, 100 // percent))
    if (technique == "mps") != (found == "mps"):
        raise PreflightError(
            f"the claim asks for {strategy or 'no strategy'}, which is not {technique}",
            where=f"ResourceClaim {claim.name}",
            next_step=f"kubectl get resourceclaim {claim.name} -o yaml; leave --resource-claim out to have one made",
        )
    if technique == "mig":
        return Offer("mig", FLAVOUR, MIG_CLASS, 1, mig_share("", NodeFacts("")))
    share = WHOLE if technique == "exclusive" else IN_TURNS
    return Offer(technique, FLAVOUR, GPU_CLASS, 1, share)


def node_of(name: str, device: SliceDevice | None) -> NodeFacts:
    """Return what is known of a node and its GPU without reading the node."""
    labels = {}
    if device is not None and device.kind != "mig":
        labels = {MEMORY_LABEL: str(int(device.memory_mb or 0)), PRODUCT_LABEL: device.product.replace(" ", "-")}
    return NodeFacts(name, labels)


def _usable(choice: Choice) -> list[SliceDevice] | None:
    if choice.devices is None:
        return None
    found = [each for each in choice.devices if not choice.node or each.node in ("", choice.node)]
    if not found:
        raise _no_devices("no device at all", choice)
    return [each for each in found if not choice.gpu or each.gpu == choice.gpu]


def _mig(parts: int, choice: Choice, devices: Sequence[SliceDevice] | None) -> Asked:
    profile = _profile(parts, choice, devices)
    selectors = [f"device.attributes['{DRIVER}'].profile == '{profile}'"]
    if choice.gpu:
        selectors.append(f"device.attributes['{DRIVER}'].parentUUID == '{choice.gpu}'")
    offer = Offer(
        "mig", FLAVOUR, MIG_CLASS, parts, mig_share(profile, node_of("", None)),
        profile=profile, memory_mb=memory_of_mb(profile),
    )  # fmt: skip
    # One claim with a request for each tenant: only so can the scheduler be told to take slices of one GPU.
    requests = tuple(f"slice-{number}" for number in range(1, parts + 1))
    return Asked(offer, requests, tuple(selectors), PARENT)


def _profile(parts: int, choice: Choice, devices: Sequence[SliceDevice] | None) -> str:
    """Return the profile: the requested one, or the largest of which one GPU has enough slices."""
    if choice.mig_profile:
        chosen_profile(NodeFacts(""), parts, choice.mig_profile)
    if devices is None:
        if choice.mig_profile:
            return choice.mig_profile
        raise UsageError(
            "the MIG profile is unknown: not permitted to list resourceslices",
            next_step="use --mig-profile, e.g. 1g.10gb; or let us read them (docs/dra.md)",
        )
    counted = Counter((each.parent, each.profile) for each in devices if each.kind == "mig")
    enough = {profile for (_, profile), count in counted.items() if count >= parts}
    if choice.mig_profile and choice.mig_profile not in enough:
        raise _no_devices(f"no GPU with {parts} slices {choice.mig_profile}", choice)
    if not enough:
        raise _no_devices(f"no GPU with {parts} equal MIG slices", choice)
    return choice.mig_profile or max(enough, key=lambda each: (memory_of_mb(each) or 0.0, each))


def _no_devices(what: str, choice: Choice) -> PreflightError:
    where = f"node {choice.node}" if choice.node else "the ResourceSlices of the cluster"
    return PreflightError(
        f"NVIDIA's DRA driver ({DRIVER}) offers {what}",
        where=where,
        next_step="kubectl get resourceslices -o wide; gputax doctor --env k8s --sharing-flavour dra",
    )
