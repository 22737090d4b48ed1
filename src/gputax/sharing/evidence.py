"""Evidence that tenants in pods shared one device by the intended technique and no other; pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gputax.environments.environment import Described, Evidence, unproven
from gputax.kubernetes.nodes import MIG_RESOURCE, STRATEGY_LABEL, NodeFacts
from gputax.plan.driver import SOFTWARE_DEVICE_NAME
from gputax.plan.environment import PROXY
from gputax.sharing.offer import NodeTechnique, Offer, memory_of_mb, node_technique, unmet
from gputax.worker.tenant.info import MPS_PERCENTAGE_VARIABLE

Reached = Literal["cuda", "software", "cpu"]


@dataclass(frozen=True)
class Seen:
    """One tenant, as reported by the cluster and by its worker."""

    number: int
    evidence: Evidence
    devices: Mapping[str, Any]
    visible: str
    """NVIDIA_VISIBLE_DEVICES in the container."""

    @property
    def reached(self) -> Reached:
        """The device on which its work ran, as reported by the driver in its process."""
        if not self.cuda:
            return "cpu"
        return "software" if str(self.cuda.get("name") or "").startswith(SOFTWARE_DEVICE_NAME) else "cuda"

    @property
    def gpu_ids(self) -> tuple[str, ...]:
        """The GPUs that it sees: from NVML, or else those assigned to its container."""
        by_nvml = tuple(str(gpu["uuid"]) for gpu in self.devices.get("gpus") or () if gpu.get("uuid"))
        given = tuple(part.partition("::")[0] for part in self.visible.split(",") if part.startswith("GPU-"))
        return by_nvml or given or tuple(self.devices.get("nodes") or ())

    @property
    def mig_ids(self) -> tuple[str, ...]:
        """The MIG slices that it sees."""
        by_nvml = tuple(str(each["uuid"]) for each in self.devices.get("mig_devices") or () if each.get("uuid"))
        return by_nvml or tuple(part for part in self.visible.split(",") if part.startswith("MIG-"))

    @property
    def mps(self) -> Mapping[str, Any]:
        """MPS as its process sees it."""
        return self.devices.get("mps") or {}

    @property
    def cuda(self) -> Mapping[str, Any]:
        """The device as the driver reports it to its process."""
        return self.devices.get("cuda") or {}

    @property
    def whole(self) -> Mapping[str, Any]:
        """The size of the whole device, as reported by NVML."""
        return next(iter(self.devices.get("whole") or ()), {})

    @property
    def resources(self) -> Mapping[str, Any]:
        """The resource limits of its pod."""
        return self.evidence.fact("limits") or {}


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


DEVICE_WORDS: dict[Reached, str] = {"cuda": "the GPU", "software": "the software device", "cpu": "the CPU"}


def technique_evidence(
    offer: Offer,
    node: NodeFacts,
    tenants: Sequence[Evidence],
    described: Sequence[Described],
    others_with_gpu: Sequence[str] = (),
) -> Evidence:
    """Compare the tenants' reports with each other, with the node and with the technique that was enabled."""
    seen = [
        Seen(number, evidence, worker.devices, str(worker.host.get("visible_devices") or ""))
        for number, (evidence, worker) in enumerate(zip(tenants, described, strict=True), start=1)
    ]
    reasons = [
        *own_reasons(tenants),
        *_place(seen, node, offer),
        *_strangers(node, others_with_gpu),
        *node_technique(offer.technique).reasons(seen, node, offer),
    ]
    reached = {each.reached for each in seen}
    facts = {
        "node": node.name,
        "strategy": node.label(STRATEGY_LABEL) or None,
        "limits": offer.limits(),
        "device_ids": [list(each.mig_ids or each.gpu_ids) for each in seen],
        "driver_reports": [each.devices.get("cuda") for each in seen],
        "reaches_device": reached == {"cuda"},
    }
    return Evidence.of(
        offer.technique, reasons, facts, warning=device_warning(reached, offer.technique), list_reasons=True
    )


def device_warning(reached: set[Reached], technique: str) -> str:
    """Return a warning if the work did not run on a GPU."""
    if reached == {"cuda"}:
        return ""
    where = " and ".join(DEVICE_WORDS[each] for each in ("cuda", "software", "cpu") if each in reached)
    return f"the work ran on {where}: this says nothing about a GPU under {technique}"


def proxy_group_evidence(tenants: Sequence[Evidence]) -> Evidence:
    """Show that one proxy on one node served all tenants, each as a separate tenant."""
    reasons = own_reasons(tenants)
    nodes = sorted({str(each.fact("node")) for each in tenants})
    if len(nodes) != 1:
        reasons.append(f"the tenants ran on different nodes: {', '.join(nodes)}")
    proxies = {(each.fact("proxy_pid"), each.fact("device")) for each in tenants}
    if len(proxies) != 1:
        reasons.append(f"the tenants were served by {len(proxies)} proxies or devices")
    numbers = [each.fact("tenant") for each in tenants]
    if None in numbers or len(set(numbers)) != len(numbers):
        reasons.append("the proxy counts two tenants as one")
    name = str(tenants[0].fact("device") or "") if tenants else ""
    reached: Reached = "software" if name.startswith(SOFTWARE_DEVICE_NAME) else "cuda"
    facts = {
        "node": ", ".join(nodes),
        "proxy_pid": tenants[0].fact("proxy_pid") if tenants else None,
        "device": name or None,
        "tenants_of_the_proxy": numbers,
        "reaches_device": reached == "cuda",
    }
    return Evidence.of(PROXY, reasons, facts, warning=device_warning({reached}, "the proxy"), list_reasons=True)


def own_reasons(tenants: Sequence[Evidence]) -> list[str]:
    """List the problems of single tenants, and tenants that are the same pod."""
    reasons = unproven(tenants)
    pods = [each.fact("pod_uid") or each.fact("pod") for each in tenants]
    if len(set(pods)) != len(pods):
        reasons.append("two tenants are the same pod")
    return reasons


def _place(seen: Sequence[Seen], node: NodeFacts, offer: Offer) -> list[str]:
    reasons = []
    nodes = {str(each.evidence.fact("node")) for each in seen}
    if nodes != {node.name}:
        reasons.append(f"the tenants ran on {', '.join(sorted(nodes))}, not all on {node.name}")
    missing = [f"the node no longer offers it: {words}" for words in unmet(node, offer)]
    if offer.on_demand and node.offered(offer.resource) < len(seen):
        missing.append(f"the node offers {node.offered(offer.resource)} {offer.resource} to {len(seen)} tenants")
    without = [str(each.number) for each in seen if not each.resources.get(offer.resource)]
    if without and offer.counted:
        reasons.append(f"the pods of tenants {', '.join(without)} did not get {offer.resource}")
    return [*reasons, *missing]


def _strangers(node: NodeFacts, others: Sequence[str]) -> list[str]:
    if not others or node.gpus > 1:  # on a node with several GPUs they may use another
        return []
    return [f"other pods use the same GPU: {', '.join(others)}"]


def same_gpu(seen: Sequence[Seen]) -> list[str]:
    """List tenants that do not all have one and the same GPU."""
    several = [f"tenant {each.number} sees {len(each.gpu_ids)} GPUs" for each in seen if len(each.gpu_ids) > 1]
    unknown = [f"unknown which GPU tenant {each.number} has" for each in seen if not each.gpu_ids]
    ids = sorted({identity for each in seen for identity in each.gpu_ids})
    if len(ids) > 1 and not several:
        return [f"the tenants have different GPUs: {', '.join(ids)}"]
    return [*several, *unknown]


def _compute_modes(seen: Sequence[Seen]) -> set[str]:
    modes = {gpu.get("compute_mode") for each in seen for gpu in each.devices.get("gpus") or ()}
    return {str(mode) for mode in modes if mode}


def _no_mps(seen: Sequence[Seen]) -> list[str]:
    under = [str(each.number) for each in seen if each.mps.get("pipe_directory")]
    return [f"tenants {', '.join(under)} used MPS: CUDA_MPS_PIPE_DIRECTORY is set"] if under else []


def time_slicing_reasons(seen: Sequence[Seen], node: NodeFacts, offer: Offer) -> list[str]:
    """Time-slicing: one GPU, no MPS, and a compute mode that allows several processes."""
    reasons = [*same_gpu(seen), *_no_mps(seen)]
    wrong = _compute_modes(seen) - {"default"}
    if wrong:
        reasons.append(f"the GPU's compute mode is {', '.join(sorted(wrong))}, not default")
    return reasons


def mps_reasons(seen: Sequence[Seen], node: NodeFacts, offer: Offer) -> list[str]:
    """MPS: one server for all. A client without its daemon runs without MPS and no error, so check the caps."""
    reasons = same_gpu(seen)
    for each in seen:
        who, mps, own = f"tenant {each.number}", each.mps, offer.of_tenant(each.number)
        if not mps.get("pipe_directory"):
            reasons.append(f"{who} is not a client of MPS: CUDA_MPS_PIPE_DIRECTORY is not set")
        elif not mps.get("control_socket"):
            reasons.append(f"{who} finds no MPS control daemon in {mps['pipe_directory']}")
        elif own.variables and mps.get("active_thread_percentage") != own.variables[MPS_PERCENTAGE_VARIABLE]:
            reasons.append(
                f"{who} asked for {own.sm_percent:g} % of the SMs, but {MPS_PERCENTAGE_VARIABLE} is "
                f"{mps.get('active_thread_percentage') or 'not set'} in its process"
            )
        elif offer.flavour == "gke" and not (mps.get("active_thread_percentage") and mps.get("pinned_memory_limit")):
            reasons.append(f"{who} does not have the variables with the MPS caps that GKE sets")
        reasons += uncapped(each, node, own)
    return reasons


def mig_reasons(seen: Sequence[Seen], node: NodeFacts, offer: Offer) -> list[str]:
    """MIG: one slice per tenant, all of the same GPU and of the intended profile."""
    reasons = [
        f"tenant {each.number} sees {len(each.mig_ids)} MIG slices, not one" for each in seen if len(each.mig_ids) != 1
    ]
    ids = [each.mig_ids[0] for each in seen if each.mig_ids]
    if len(set(ids)) != len(ids):
        reasons.append("two tenants have the same MIG slice")
    parents = {parent for each in seen for parent in _parents(each)}
    if len(parents) > 1:
        reasons.append(f"the slices are of different GPUs: {', '.join(sorted(parents))}")
    for each in seen:
        profiles = {slice_["profile"] for slice_ in each.devices.get("mig_devices") or () if slice_.get("profile")}
        asked = {name.removeprefix(MIG_RESOURCE) for name in each.resources if name.startswith(MIG_RESOURCE)}
        wrong = (profiles or asked) - {offer.profile}
        if wrong:
            reasons.append(f"tenant {each.number} has the profile {', '.join(sorted(wrong))}, not {offer.profile}")
        if each.reached == "cuda" and not _parents(each):
            reasons.append(f"unknown which GPU the slice of tenant {each.number} belongs to")
        reasons += larger_than(each, memory_of_mb(offer.profile))
    return reasons


def exclusive_reasons(seen: Sequence[Seen], node: NodeFacts, offer: Offer) -> list[str]:
    """Exclusive: one tenant, and no other process on its GPU."""
    reasons = [*same_gpu(seen), *_no_mps(seen)]
    if len(seen) != 1:
        reasons.append(f"{len(seen)} tenants cannot each have the whole device")
    for each in seen:
        processes = each.whole.get("processes")
        if processes is not None and processes > 1:
            reasons.append(f"{processes - 1} other processes run on the GPU of tenant {each.number}")
    return reasons


# The techniques that a node's installation (`flavours.py`) offers, as rows of `plan/techniques.py` name them.
EXCLUSIVE, TIME_SLICING = NodeTechnique(exclusive_reasons), NodeTechnique(time_slicing_reasons)
MPS, MIG = NodeTechnique(mps_reasons), NodeTechnique(mig_reasons)


def larger_than(tenant: Seen, size_mb: float | None) -> list[str]:
    """Report a driver that shows more memory than the slice has."""
    total_mb = tenant.cuda.get("memory_total_mb")
    if tenant.reached == "cpu" or size_mb is None or (total_mb and total_mb <= CAP_TOLERANCE * size_mb):
        return []
    return [f"tenant {tenant.number} does not have a slice of {mib(size_mb)}: the driver reports {mib(total_mb)}"]


def _parents(tenant: Seen) -> tuple[str, ...]:
    """Return the GPU of a slice: from NVML, or from the slice's name in the older format."""
    by_nvml = tuple(str(gpu["uuid"]) for gpu in tenant.devices.get("gpus") or () if gpu.get("uuid"))
    named = tuple(each.removeprefix("MIG-").partition("/")[0] for each in tenant.mig_ids if "GPU-" in each)
    return by_nvml or named
