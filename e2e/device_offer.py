"""What the device plugin offers and hands out in each mode, as pure functions: no kubelet, no gRPC, no API."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

RESOURCE = "nvidia.com/gpu"
GPU_MEMORY_MB = 81920
"""What a stand-in GPU claims to have: the software device behind it takes it over and touches only what is used."""
MIG_SLICES = 7
MPS_ROOT = "/mps"
"""Where NVIDIA's plugin mounts the control daemon's directory in a container."""

Strategy = Literal["none", "time-slicing", "mps"]


@dataclass(frozen=True)
class Mode:
    """How the node's GPUs are offered."""

    strategy: Strategy = "none"
    replicas: int = 1
    renamed: bool = False
    profile: str = ""
    """MIG's profile, such as `1g.10gb`; empty where MIG is off."""
    packed: bool = False
    """Shares of a GPU that is in use already are given first; by default tenants are spread over the GPUs."""

    @property
    def resource(self) -> str:
        """Return the name that pods ask for."""
        if self.profile:
            return f"nvidia.com/mig-{self.profile}"
        return f"{RESOURCE}.shared" if self.renamed and self.strategy != "none" else RESOURCE


EXCLUSIVE = Mode()


@dataclass(frozen=True)
class Device:
    """One thing that a pod can ask for: a whole GPU, one of several shares of it, or a MIG slice."""

    identity: str
    gpu: int
    healthy: bool = True


@dataclass(frozen=True)
class Grant:
    """What a container gets for its devices."""

    variables: dict[str, str]
    nodes: tuple[tuple[str, str], ...]
    """Pairs of path in the container and path on the host."""
    mounts: tuple[tuple[str, str], ...] = ()
    """The same, for directories."""


@dataclass(frozen=True)
class Lies:
    """How the plugin misbehaves, for tests that must see through it."""

    no_pipe: bool = False
    """MPS by name alone: no pipe directory, no cap."""
    no_daemon: bool = False
    """The pipe directory is there, but no control daemon listens in it, and nothing is capped."""
    spread: bool = False
    """Tenants are put on different GPUs where they should be packed, as a plugin does that is too old to know it."""


HONEST = Lies()


@dataclass(frozen=True)
class PipeDirectories:
    """Where on the host the MPS stand-in's sockets are; one directory with a daemon and one without."""

    served: str
    empty: str


def gpu_uuid(gpu: int) -> str:
    """Return a stand-in GPU's id; the prefix is NVIDIA's, the rest says that it is none."""
    return f"GPU-e2e00000-0000-0000-0000-{gpu:012d}"


def mig_uuid(gpu: int, part: int) -> str:
    """Return the id of one slice of a stand-in GPU."""
    return f"MIG-e2e00000-0000-0000-{part:04d}-{gpu:012d}"


def offer(gpus: int, mode: Mode = EXCLUSIVE, unhealthy: Collection[str] = ()) -> tuple[Device, ...]:
    """Return the devices; a shared GPU is offered several times, as NVIDIA's plugin does (`UUID::N`)."""
    return tuple(
        Device(identity, gpu, healthy=identity not in unhealthy and gpu_uuid(gpu) not in unhealthy)
        for gpu in range(gpus)
        for identity in _identities(gpu, mode)
    )


def grant(
    identities: Iterable[str],
    devices: Collection[Device],
    mode: Mode = EXCLUSIVE,
    pipes: PipeDirectories | None = None,
    lies: Lies = HONEST,
) -> Grant:
    """Return variables, device nodes and mounts for these devices; each node is /dev/null under the GPU's name."""
    wanted = set(identities)
    chosen = [device for device in devices if device.identity in wanted]
    gpus = sorted({device.gpu for device in chosen})
    visible = [device.identity for device in chosen] if mode.profile else [gpu_uuid(gpu) for gpu in gpus]
    uuids = ",".join(visible)
    variables = {"NVIDIA_VISIBLE_DEVICES": uuids, "GPUTAX_E2E_STAND_IN_GPUS": uuids}
    variables["GPUTAX_SOFT_MEMORY_MB"] = str(memory_mb(mode, lies))
    mounts: tuple[tuple[str, str], ...] = ()
    if mode.strategy == "mps" and pipes is not None and not lies.no_pipe:
        inside = f"{MPS_ROOT}/{mode.resource}/pipe"
        variables["CUDA_MPS_PIPE_DIRECTORY"] = inside
        mounts = ((inside, pipes.empty if lies.no_daemon else pipes.served),)
    return Grant(variables, tuple((f"/dev/nvidia{gpu}", "/dev/null") for gpu in gpus), mounts)


def preferred(
    available: Collection[str], needed: Collection[str], size: int, devices: Iterable[Device], *, packed: bool
) -> list[str]:
    """Return which devices to hand out: all from the fullest GPU, or each from the emptiest."""
    gpu_of = {device.identity: device.gpu for device in devices}
    chosen, free = list(needed), [each for each in sorted(available) if each not in needed]
    while len(chosen) < size and free:
        left = Counter(gpu_of.get(each, -1) for each in free)
        gpu = min(left, key=lambda each: (left[each] if packed else -left[each], each))
        taken = next(each for each in free if gpu_of.get(each, -1) == gpu)
        free.remove(taken)
        chosen.append(taken)
    return chosen


def memory_mb(mode: Mode, lies: Lies = HONEST) -> int:
    """Return how much of the device's memory one tenant sees."""
    if mode.profile:
        return profile_memory_mb(mode.profile)
    if mode.strategy == "mps" and not (lies.no_pipe or lies.no_daemon):
        return GPU_MEMORY_MB // mode.replicas
    return GPU_MEMORY_MB


def profile_memory_mb(profile: str) -> int:
    """Return the memory that a profile such as `1g.10gb` names."""
    found = re.fullmatch(r"\d+g\.(\d+)gb", profile)
    if found is None:
        raise ValueError(f"no MIG profile: {profile}")
    return int(found[1]) * 1024


def mig_slices(profile: str) -> int:
    """Return how many slices of a profile a GPU has: seven compute slices, divided by what the profile takes."""
    profile_memory_mb(profile)
    return MIG_SLICES // int(profile.partition("g.")[0])


def discovery_labels(mode: Mode, gpus: int) -> dict[str, str]:
    """Return the node labels that NVIDIA's feature discovery and GPU operator would set."""
    labels = {
        "gpu.deploy.device-plugin": "true",
        "gpu.deploy.mig-manager": "true",
        "gpu.count": str(gpus),
        "gpu.memory": str(GPU_MEMORY_MB),
        "gpu.product": "Stand-in-GPU" + ("-SHARED" if mode.strategy != "none" and not mode.renamed else ""),
        "gpu.sharing-strategy": mode.strategy,
        "mig.capable": "true",
        "mig.strategy": "mixed",
        "mps.capable": str(mode.strategy == "mps").lower(),
    }
    if mode.profile:
        labels[f"mig-{mode.profile}.count"] = str(gpus * mig_slices(mode.profile))
        labels[f"mig-{mode.profile}.memory"] = str(profile_memory_mb(mode.profile))
    else:
        labels["gpu.replicas"] = str(mode.replicas)
    return {f"nvidia.com/{name}": value for name, value in labels.items()}


@dataclass(frozen=True)
class Switches:
    """What a test may turn while the plugin runs: words in a file."""

    gpus: int | None = None
    never_ready: bool = False
    mig_fails: bool = False
    lies: Lies = field(default_factory=Lies)


def switches(words: Iterable[str]) -> Switches:
    """Read the words `gpus=N`, `never-ready`, `mig-fails`, `no-pipe`, `no-daemon`, `spread`."""
    said = dict.fromkeys(words)
    known = ("never-ready", "mig-fails", "no-pipe", "no-daemon", "spread")
    if unknown := [word for word in said if word not in known and not word.startswith("gpus=")]:
        raise ValueError(f"unknown switches: {', '.join(unknown)}")
    count = next((int(word.removeprefix("gpus=")) for word in said if word.startswith("gpus=")), None)
    lies = Lies("no-pipe" in said, "no-daemon" in said, "spread" in said)
    return Switches(count, "never-ready" in said, "mig-fails" in said, lies)


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str | None]:
    """Return the merge patch from our former labels to the new ones: what is not ours any more is removed."""
    gone: dict[str, str | None] = {name: None for name in before if name not in after}
    return gone | {name: value for name, value in after.items() if before.get(name) != value}


def _identities(gpu: int, mode: Mode) -> list[str]:
    if mode.profile:
        return [mig_uuid(gpu, part) for part in range(mig_slices(mode.profile))]
    if mode.replicas > 1:
        return [f"{gpu_uuid(gpu)}::{share}" for share in range(mode.replicas)]
    return [gpu_uuid(gpu)]
