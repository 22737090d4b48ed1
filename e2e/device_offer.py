"""What the device plugin offers and hands out, as pure functions: no kubelet, no gRPC."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

RESOURCE = "nvidia.com/gpu"


@dataclass(frozen=True)
class Device:
    """One thing that a pod can ask for: a whole GPU, or one of several shares of it."""

    identity: str
    gpu: int
    healthy: bool = True


@dataclass(frozen=True)
class Grant:
    """What a container gets for its devices."""

    variables: dict[str, str]
    nodes: tuple[tuple[str, str], ...]
    """Pairs of path in the container and path on the host."""


def gpu_uuid(gpu: int) -> str:
    """Return a stand-in GPU's id; the prefix is NVIDIA's, the rest says that it is none."""
    return f"GPU-e2e00000-0000-0000-0000-{gpu:012d}"


def offer(gpus: int, unhealthy: Collection[str] = (), replicas: int = 1) -> tuple[Device, ...]:
    """Return the devices; with replicas each GPU is offered several times, as NVIDIA's plugin does (`UUID::N`)."""

    def identities(gpu: int) -> Iterable[str]:
        return (gpu_uuid(gpu) + (f"::{share}" if replicas > 1 else "") for share in range(replicas))

    return tuple(
        Device(identity, gpu, healthy=identity not in unhealthy and gpu_uuid(gpu) not in unhealthy)
        for gpu in range(gpus)
        for identity in identities(gpu)
    )


def grant(identities: Iterable[str], devices: Collection[Device]) -> Grant:
    """Return variables and device nodes for these devices; each node is /dev/null under the GPU's name."""
    wanted = set(identities)
    gpus = sorted({device.gpu for device in devices if device.identity in wanted})
    uuids = ",".join(gpu_uuid(gpu) for gpu in gpus)
    return Grant(
        variables={"NVIDIA_VISIBLE_DEVICES": uuids, "GPUTAX_E2E_STAND_IN_GPUS": uuids},
        nodes=tuple((f"/dev/nvidia{gpu}", "/dev/null") for gpu in gpus),
    )
