"""One tenant in a pod, as reported by the cluster and by its worker; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gputax.environments.evidence import Evidence
from gputax.plan.driver import SOFTWARE_DEVICE_NAME

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
