"""The caps of MPS as a tenant's own driver shows them; pure."""

from __future__ import annotations

from gputax.kubernetes.nodes import NodeFacts
from gputax.sharing.flavours.offer import Offer
from gputax.sharing.seen import Seen

# A cap is met by what the driver rounds and keeps for itself; twice the cap would be no cap.
CAP_TOLERANCE = 1.1
# SMs are given in pairs.
SM_STEP = 2
# The software device's own size, where nothing is set (native/device).
SOFTWARE_MEMORY_MB = 1024.0


def uncapped(tenant: Seen, node: NodeFacts, offer: Offer) -> list[str]:
    """Say where no cap of MPS is seen: one of its signs is enough, because a process without MPS has none of them.

    A client of MPS is told its part of the SMs, and its memory limit as what is free; the total stays the device's.
    """
    if tenant.reached == "cpu":
        return []  # nobody asked the driver; `reaches_device` says so
    cap_mb, whole_sms, cuda = _cap_mb(tenant, node, offer), tenant.whole.get("sm_count"), tenant.cuda
    sms, free_mb, total_mb = (cuda.get(name) for name in ("sm_count", "memory_free_mb", "memory_total_mb"))
    signs = (
        _fewer_sms(sms, whole_sms, offer.sm_percent),
        bool(cap_mb and total_mb and total_mb <= CAP_TOLERANCE * cap_mb),
        _less_free(free_mb, tenant.whole.get("memory_free_mb"), cap_mb),
    )
    if any(signs):
        return []
    told = f"the driver reports {sms} of {whole_sms} SMs, {mib(free_mb)} free of {mib(total_mb)}"
    caps = f"{offer.sm_percent:g} % and {mib(cap_mb)}" if offer.sm_percent else mib(cap_mb)
    return [f"tenant {tenant.number} is not capped by MPS: {told}; its caps are {caps}"]


def _fewer_sms(sms: int | None, whole: int | None, percent: float | None) -> bool:
    if not (sms and whole and percent):
        return False
    return sms < whole and sms <= CAP_TOLERANCE * whole * percent / 100 + SM_STEP


def _less_free(free_mb: float | None, device_free_mb: float | None, cap_mb: float | None) -> bool:
    """Whether less is free than the cap, though the device has more: else it is memory that lacks, and no cap."""
    if free_mb is None or not device_free_mb or not cap_mb:
        return False
    return free_mb <= CAP_TOLERANCE * cap_mb and device_free_mb > CAP_TOLERANCE * free_mb


def _cap_mb(tenant: Seen, node: NodeFacts, offer: Offer) -> float | None:
    """Return the cap that the tenant must see: the offer's, or the device's part where only its size is known."""
    if offer.memory_mb:
        return offer.memory_mb
    whole = node.memory_mb or tenant.whole.get("memory_total_mb")
    if whole is None and tenant.reached == "software":
        whole = SOFTWARE_MEMORY_MB
    return None if whole is None else float(whole) / offer.replicas


def mib(size_mb: float | None) -> str:
    """Return a size in words."""
    return "unknown" if size_mb is None else f"{size_mb:.0f} MiB"
