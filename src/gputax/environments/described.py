"""The worker's reply to `describe`: the host, container and devices that it sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Described:
    """A typed view of the reply, which is stored unchanged; unknown values are None or empty."""

    answer: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the reply as it is stored."""
        return dict(self.answer)

    def with_driver(self, driver: Mapping[str, Any]) -> Described:
        """Return the description plus the worker's report on its driver, which is available only after a load."""
        return Described({**self.answer, **driver})

    @property
    def pid(self) -> int | None:
        """The worker's process id in its own namespace."""
        return self.answer.get("pid")

    @property
    def host(self) -> Mapping[str, Any]:
        """The machine, its operating system and its Python."""
        return self.answer.get("host") or {}

    @property
    def hostname(self) -> str | None:
        """The machine's name; in a container the container's, in a pod the pod's."""
        return self.host.get("hostname")

    @property
    def cgroup(self) -> str | None:
        """The worker's control group."""
        return self.host.get("cgroup")

    @property
    def container_hints(self) -> Mapping[str, Any]:
        """Signs that the worker runs in a container."""
        return self.host.get("container_hints") or {}

    @property
    def cpu_allowance(self) -> Mapping[str, Any] | None:
        """The CPUs that the worker may use, and what limits them."""
        return self.answer.get("cpu_allowance")

    @property
    def affinity(self) -> tuple[int, ...]:
        """The cores that the worker may run on."""
        return tuple((self.cpu_allowance or {}).get("affinity") or ())

    @property
    def quota_cpus(self) -> float | None:
        """The worker's CPU quota; None without one."""
        return (self.cpu_allowance or {}).get("quota_cpus")

    @property
    def devices(self) -> Mapping[str, Any]:
        """The GPUs, as NVML, the driver and the device nodes show them."""
        return self.answer.get("devices") or {}

    @property
    def gpus(self) -> list[dict[str, Any]]:
        """The GPUs that NVML lists."""
        return self.devices.get("gpus") or []

    @property
    def device_nodes(self) -> tuple[str, ...]:
        """The device nodes of GPUs."""
        return tuple(self.devices.get("nodes") or ())

    @property
    def packages(self) -> Mapping[str, Any] | None:
        """The versions of installed packages that matter."""
        return self.answer.get("packages")

    @property
    def driver(self) -> Mapping[str, Any] | None:
        """The driver that the worker used; None until the worker is asked after a load."""
        return self.answer.get("driver")
