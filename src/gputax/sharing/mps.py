"""Check that a tenant's driver reports the caps of MPS; pure functions."""

from __future__ import annotations

from gputax.kubernetes.nodes import NodeFacts
from gputax.sharing.flavours.offer import Offer
from gputax.sharing.seen import Seen

# Allows for the driver's rounding and its own memory; without a cap the value would be far higher.
CAP_TOLERANCE = 1.1
# SMs are assigned in pairs.
SM_STEP = 2
# The software device's default memory (native/device).
SOFTWARE_MEMORY_MB = 1024.0


def uncapped(tenant: Seen, node: NodeFacts, offer: Offer) -> list[str]:
    """Report a tenant without any sign of an MPS cap; one sign is enough, because without MPS there is none.

    MPS reports to a client its share of the SMs, and its memory limit as free memory; the total stays the device's.
    """
    if tenant.reached == "cpu":
        return []  # the driver was not used; `reaches_device` records that
    cap_mb, whole_sms, cuda = _cap_mb(tenant, node, offer), tenant.whole.get("sm_count"), tenant.cuda
    sms, free_mb, total_mb = (cuda.get(name) for name in ("sm_count", "memory_free_mb", "memory_total_mb"))
    signs = (
        _fewer_sms(sms, whole_sms, offer.sm_percent),
        bool(cap_mb and total_mb and total_mb <= CAP_TOLERANCE * cap_mb),
        _less_free(free_mb, tenant.whole.get("memory_free_mb"), cap_mb),
    )
    if any(signs):
        return []
    found = f"the driver reports {sms} of {whole_sms} SMs, {mib(free_mb)} free of {mib(total_mb)}"
    caps = f"{offer.sm_percent:g} % and {mib(cap_mb)}" if offer.sm_percent else mib(cap_mb)
    return [f"tenant {tenant.number} is not capped by MPS: {found}; its caps are {caps}"]


def _fewer_sms(sms: int | None, whole: int | None, percent: float | None) -> bool:
    if not (sms and whole and percent):
        return False
    return sms < whole and sms <= CAP_TOLERANCE * whole * percent / 100 + SM_STEP


def _less_free(free_mb: float | None, device_free_mb: float | None, cap_mb: float | None) -> bool:
    """Whether free memory is below the cap although the device has more; otherwise the memory is just in use."""
    if free_mb is None or not device_free_mb or not cap_mb:
        return False
    return free_mb <= CAP_TOLERANCE * cap_mb and device_free_mb > CAP_TOLERANCE * free_mb


def _cap_mb(tenant: Seen, node: NodeFacts, offer: Offer) -> float | None:
    """Return the tenant's cap: the offer's, or an equal share of the device's memory if only that is known."""
    if offer.memory_mb:
        return offer.memory_mb
    whole = node.memory_mb or tenant.whole.get("memory_total_mb")
    if whole is None and tenant.reached == "software":
        whole = SOFTWARE_MEMORY_MB
    return None if whole is None else float(whole) / offer.replicas


def mib(size_mb: float | None) -> str:
    """Format a size."""
    return "unknown" if size_mb is None else f"{size_mb:.0f} MiB"
