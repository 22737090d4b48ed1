"""Which mode a GPU is in, as one process sees it: shared how, by whom, within which limits; pure functions on facts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gputax.doctor.surroundings import host_limits, surroundings
from gputax.environments.environment import Described, Evidence
from gputax.environments.proxy import tenant_of
from gputax.errors import unknown_name
from gputax.kubernetes.nodes import GKE_STRATEGY, REPLICAS_LABEL, STRATEGY_LABEL, NodeFacts
from gputax.plan.driver import SOFTWARE_DEVICE_NAME
from gputax.sharing.evidence import CAP_TOLERANCE, Seen, mib
from gputax.text import counted

MOST_NAMED = 3
MB = 1 << 20


@dataclass(frozen=True)
class Facts:
    """All that was collected; what was not asked or not answered is empty."""

    described: Described
    """The worker's description, with its answers about driver, devices and mode."""
    evidence: Evidence = field(default_factory=Evidence)
    """What the environment says from outside, such as the pod's limits."""
    node: NodeFacts | None = None
    pods_beside: tuple[str, ...] | None = None
    """Other pods on the node that ask for a GPU; None if they could not be listed."""
    proxy: Mapping[str, Any] | None = None
    """The status of the proxy behind which the worker runs."""

    @property
    def seen(self) -> Seen:
        """The worker's devices, as the checks of shared devices read them."""
        visible = str(self.described.host.get("visible_devices") or "")
        return Seen(1, self.evidence, self.described.devices, visible)

    @property
    def answers(self) -> Mapping[str, Any]:
        """What the worker was asked about the mode."""
        return self.described.answer.get("mode") or {}

    @property
    def company(self) -> Mapping[str, Any]:
        """The processes on the GPU, by NVML."""
        return self.answers.get("company") or {}

    @property
    def vgpu(self) -> Mapping[str, Any] | None:
        """The connection to a GPU proxy; None without one."""
        return (self.described.driver or {}).get("vgpu")

    @property
    def strategy(self) -> str:
        """How the node's labels say that its GPUs are shared; empty without such a label."""
        if self.node is None:
            return ""
        return self.node.label(STRATEGY_LABEL) or self.node.label(GKE_STRATEGY).replace("sharing", "slicing")


@dataclass(frozen=True)
class Shown:
    """A mode that the facts show, and how far they prove it."""

    text: str
    detail: str = ""
    """The profile of a MIG slice, the percentage of an MPS client."""
    proofs: tuple[str, ...] = ()
    certain: bool = True
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mode:
    """The answer of `gputax verify`."""

    name: str
    text: str
    detail: str
    certain: bool
    device: str
    layers: tuple[str, ...]
    """What is around the process, e.g. pod, xen, dra."""
    limits: Mapping[str, str]
    others: str
    proofs: tuple[str, ...]
    problems: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        fields = dataclasses.asdict(self)
        return {"mode": fields.pop("name"), **fields}


def mode_of(facts: Facts) -> Mode:
    """Return the first mode of the registry that the facts show; the last one, `none`, always fits."""
    name, found = next((name, found) for name, find in MODES.items() if (found := find(facts)) is not None)
    unproven = facts.evidence.reasons if facts.evidence.active is False else ()
    return Mode(
        name=name,
        text=found.text,
        detail=found.detail,
        certain=found.certain,
        device=_device(facts),
        layers=surroundings(facts.described, facts.evidence),
        limits={**_gpu_limits(facts), **host_limits(facts.described)},
        others=_others(facts),
        proofs=found.proofs,
        problems=(*found.problems, *unproven),
    )


def refuse_unknown_modes(expected: Sequence[str]) -> None:
    """Raise UsageError for an expectation that is neither a mode nor a layer."""
    for text in expected:
        name = text.partition("=")[0]
        if name not in EXPECTABLE:
            raise unknown_name("mode or layer", name, EXPECTABLE, SYNONYMS)


def unmet(mode: Mode, expected: Sequence[str]) -> list[str]:
    """Return the expectations that the mode does not meet; each is `NAME` or `NAME=DETAIL`."""
    missing = []
    for text in expected:
        name, _, detail = text.partition("=")
        if name == mode.name and (not detail or _same(detail, mode.detail)):
            if not mode.certain:
                missing.append(f"{text} is likely but not proven: {mode.text}")
        elif name not in mode.layers or detail:
            seen = f"{mode.name}={mode.detail.replace(' ', '')}" if mode.detail else mode.name
            missing.append(f"{text} was expected, this is {', '.join((seen, *mode.layers))}")
    return missing


def _same(one: str, other: str) -> bool:
    return one.replace(" ", "").rstrip("%").casefold() == other.replace(" ", "").rstrip("%").casefold()


def _behind_proxy(facts: Facts) -> Shown | None:
    if facts.vgpu is None:
        return None
    device = str(facts.vgpu.get("device") or "an unknown device")
    text = f"behind a GPU proxy, as its tenant {facts.vgpu.get('tenant')}, on {device}"
    calls = sum((facts.vgpu.get("calls") or {}).values())
    proofs = [f"libcuda.so.1 is libvgpu, which made {calls} calls by {facts.vgpu.get('transport')}"]
    nodes = facts.described.device_nodes
    problems = [f"the device nodes {', '.join(nodes)} are here too: the proxy can be passed by"] if nodes else []
    if facts.vgpu.get("lost"):
        problems.append("the connection to the proxy is lost")
    return Shown(text, proofs=tuple(proofs), problems=tuple(problems))


def _software(facts: Facts) -> Shown | None:
    name = str(facts.seen.cuda.get("name") or "")
    if not name.startswith(SOFTWARE_DEVICE_NAME):
        return None
    return Shown(f"the {name.removeprefix('gputax ')} of gputax: a CPU, not a GPU", proofs=("the driver names it",))


def _mig(facts: Facts) -> Shown | None:
    ids = facts.seen.mig_ids
    if not ids:
        return None
    slices = facts.seen.devices.get("mig_devices") or ()
    profiles = [str(each["profile"]) for each in slices if each.get("profile")]
    detail = ",".join(profiles)
    text = f"{counted(len(ids), 'MIG slice')}" + (f" of profile {detail}" if detail else ", of unknown profile")
    by = "NVML lists" if profiles else "NVIDIA_VISIBLE_DEVICES names"
    return Shown(text, detail, (f"{by} {', '.join(ids)}",), certain=bool(profiles))


def _mps(facts: Facts) -> Shown | None:
    mps, whole, cuda = facts.seen.mps, facts.seen.whole, facts.seen.cuda
    if not mps.get("pipe_directory") or not mps.get("control_socket"):
        return None
    sms, whole_sms = cuda.get("sm_count"), whole.get("sm_count")
    proofs = []
    if sms and whole_sms and sms < whole_sms:
        proofs.append(f"the driver reports {sms} of {whole_sms} SMs")
    free_mb, device_free_mb = cuda.get("memory_free_mb"), whole.get("memory_free_mb")
    if free_mb and device_free_mb and device_free_mb > CAP_TOLERANCE * free_mb:
        proofs.append(f"the driver reports {mib(free_mb)} free, the device has {mib(device_free_mb)}")
    if facts.company.get("mps_clients"):
        proofs.append(f"NVML counts {counted(facts.company['mps_clients'], 'MPS client')}")
    given = mps.get("active_thread_percentage")
    percent = float(given) if given and given.replace(".", "", 1).isdigit() else None
    if percent is None and sms and whole_sms and sms < whole_sms:
        percent = 100.0 * sms / whole_sms
    detail = "" if percent is None else f"{percent:.0f} %"
    text = "a client of MPS, " + (f"capped at {detail} of the SMs" if detail else "without a visible cap on SMs")
    return Shown(text, detail, (f"the control daemon's socket is in {mps['pipe_directory']}", *proofs), bool(proofs))


def _limiter(facts: Facts) -> Shown | None:
    limits = facts.answers.get("limiter")
    if not limits or not _has_gpu(facts):
        return None
    shares = [f"{limits['sm_percent']} % of the SMs"] if limits.get("sm_percent") else []
    shares += [f"{limits['memory']} of memory"] if limits.get("memory") else []
    problems = () if limits.get("loaded") else ("its variables are set, but its library is not loaded: no limit holds",)
    return Shown(
        f"limited in the process itself, to {' and '.join(shares)}; a program can leave such a limit",
        str(limits.get("sm_percent") or ""),
        ("its variables are set" + (" and its library is loaded" if limits.get("loaded") else ""),),
        certain=bool(limits.get("loaded")),
        problems=problems,
    )


def _vgpu_of_nvidia(facts: Facts) -> Shown | None:
    if "vgpu" not in {gpu.get("virtualization") for gpu in facts.described.gpus}:
        return None
    return Shown("an NVIDIA vGPU of a virtual machine: who else has the GPU is known to its host only")


def _exclusive(facts: Facts) -> Shown | None:
    modes = {gpu.get("compute_mode") for gpu in facts.described.gpus}
    problems = _lost_daemon(facts)
    if "exclusive-process" in modes and not facts.seen.mps.get("control_socket"):
        proofs = ("the compute mode is exclusive-process, and there is no MPS daemon here",)
        return Shown("exclusive: the driver lets no second process in", proofs=proofs, problems=problems)
    if facts.strategy == "none" and not _foreign(facts):
        proofs = (f"the node's label {STRATEGY_LABEL} is none",)
        text = "exclusive: the node gives each GPU to one pod at a time"
        return Shown(text, proofs=proofs, problems=problems)
    return None


def _time_slicing(facts: Facts) -> Shown | None:
    if not _has_gpu(facts):
        return None
    foreign, labelled = _foreign(facts), facts.strategy == "time-slicing"
    if not foreign and not labelled:
        return None
    proofs = []
    if labelled and facts.node is not None:
        replicas = facts.node.label(REPLICAS_LABEL)
        proofs.append(f"the node's labels say time-slicing{f' with {replicas} replicas' if replicas else ''}")
    if foreign:
        proofs.append(f"NVML counts {foreign} other process{'es' * (foreign != 1)}, and there is no MPS here")
    text = "time-slicing: processes take turns on the whole GPU, without a limit on memory or SMs"
    return Shown(text, proofs=tuple(proofs), problems=_lost_daemon(facts))


def _alone(facts: Facts) -> Shown | None:
    if not _has_gpu(facts):
        return None
    known = facts.company.get("known") and _foreign(facts) == 0
    text = "alone now: nobody else is on the GPU, but nothing seen from here forbids it"
    unknown = f"who else is on the GPU is unknown from here ({facts.company.get('why') or 'NVML lists ids of another'})"
    return Shown(text if known else unknown, certain=bool(known), problems=_lost_daemon(facts))


def _none(facts: Facts) -> Shown | None:
    devices = facts.described.devices
    signs = [*(devices.get("nodes") or ()), *(["a GPU on the PCI bus"] if devices.get("pci_devices") else [])]
    why = str(facts.answers.get("why") or devices.get("why") or "nothing was found")
    if signs:
        return Shown(f"no GPU can be used here, although there is {', '.join(signs)}: {why}", problems=(why,))
    return Shown(f"no GPU here: {why}")


# The first that fits is the answer: what is nearer to the process comes first.
MODES: dict[str, Callable[[Facts], Shown | None]] = {
    "proxy": _behind_proxy,
    "software": _software,
    "mig": _mig,
    "mps": _mps,
    "limiter": _limiter,
    "vgpu": _vgpu_of_nvidia,
    "exclusive": _exclusive,
    "time-slicing": _time_slicing,
    "alone": _alone,
    "none": _none,
}
LAYERS = ("bare", "container", "pod", "gvisor", "kata", "xen", "vm", "dra")
EXPECTABLE = (*MODES, *LAYERS)
SYNONYMS = {"shared": "time-slicing", "hami": "limiter", "k8s": "pod", "docker": "container", "podman": "container"}


def _has_gpu(facts: Facts) -> bool:
    return bool(facts.answers.get("opened")) and bool(facts.seen.cuda)


def _foreign(facts: Facts) -> int:
    """Return how many other processes are on the GPU, as far as ours can be told from theirs."""
    foreign = facts.company.get("foreign")
    if foreign is not None:
        return len(foreign)
    # In another process namespace the ids say nothing, but all beyond our own one are others.
    return max(0, int(facts.company.get("processes") or 0) - 1)


def _lost_daemon(facts: Facts) -> tuple[str, ...]:
    """Report a client that was set up for MPS and runs without it, which CUDA does without an error."""
    mps = facts.seen.mps
    if not mps.get("pipe_directory") or mps.get("control_socket"):
        return ()
    return (f"set up for MPS, but no daemon is in {mps['pipe_directory']}: programs run without MPS and without error",)


def _device(facts: Facts) -> str:
    name = facts.seen.cuda.get("name") or next((gpu.get("name") for gpu in facts.described.gpus), "")
    return str(name or "")


def _gpu_limits(facts: Facts) -> dict[str, str]:
    cuda, whole, mps = facts.seen.cuda, facts.seen.whole, facts.seen.mps
    limits = {}
    if cuda.get("sm_count"):
        of = f" of {whole['sm_count']}" if whole.get("sm_count") else ""
        limits["SMs"] = f"{cuda['sm_count']}{of}"
    memory = [f"{mib(cuda['memory_free_mb'])} free"] if cuda.get("memory_free_mb") is not None else []
    memory += [f"{mib(cuda['memory_total_mb'])} in total"] if cuda.get("memory_total_mb") is not None else []
    if memory:
        limits["GPU memory"] = ", ".join(memory)
    if mps.get("pinned_memory_limit"):
        limits["MPS memory"] = str(mps["pinned_memory_limit"])
    tenant = tenant_of(facts.proxy or {}, (facts.vgpu or {}).get("tenant"))
    if tenant is not None and tenant.get("memory_limit_bytes"):
        limits["proxy's quota"] = mib(tenant["memory_limit_bytes"] / MB)
    return limits


def _others(facts: Facts) -> str:
    if facts.vgpu is not None:
        if facts.proxy is None:
            return "unknown: the proxy's status cannot be read from here"
        own = facts.vgpu.get("tenant")
        beside = [each for each in facts.proxy.get("tenants") or () if each.get("id") != own]
        active = facts.proxy.get("active_tenants")
        if active is None:
            return "unknown: the proxy shows a tenant nobody else"
        return counted(len(beside), "other tenant") + " of the proxy" if beside else "nobody: the only tenant"
    if not _has_gpu(facts) or facts.seen.reached == "software":
        return "nobody: there is no GPU to share"
    parts = []
    foreign = facts.company.get("foreign")
    if foreign is not None:
        named = [f"{each.get('name') or 'process'} ({each['pid']})" for each in foreign[:MOST_NAMED]]
        more = f" and {len(foreign) - MOST_NAMED} more" if len(foreign) > MOST_NAMED else ""
        parts.append(", ".join(named) + more if named else "no other process")
    elif facts.company.get("known"):
        count = _foreign(facts)
        parts.append(f"{count} process{'es' * (count != 1)} beside this one, in another namespace")
    else:
        parts.append(f"unknown: {facts.company.get('why') or 'NVML was not asked'}")
    if facts.pods_beside:
        parts.append(f"pods with a GPU on this node: {', '.join(facts.pods_beside[:MOST_NAMED])}")
    return "; ".join(parts)
