"""The protocol of environments: start a worker, what it says of its host and device, the evidence for its layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import IO, Any, Protocol, TypeAlias, runtime_checkable

from gputax.errors import GputaxError


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
    def told_cpus(self) -> float | None:
        """The CPU limit that the coordinator told the worker; None if it told none."""
        return (self.cpu_allowance or {}).get("told_cpus")

    @property
    def kernel(self) -> str | None:
        """The release of the kernel that answers the worker."""
        return self.host.get("kernel")

    @property
    def sandbox(self) -> str | None:
        """The runtime that the kernel below the worker is part of: `gvisor` or `kata`; None for any other kernel."""
        return self.host.get("sandbox")

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

    @property
    def answers(self) -> Mapping[str, Any]:
        """How the answers of each batch size were checked; empty for an engine that does not check its own."""
        return self.answer.get("answers") or {}


ANSWER_KEYS = ("layer", "active", "reasons", "warning")


@dataclass(frozen=True)
class Evidence:
    """A typed view of the document stored with a result; the document itself is never changed."""

    stored: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        layer: str,
        reasons: Sequence[str],
        facts: Mapping[str, Any] | None = None,
        *,
        warning: str = "",
        list_reasons: bool = False,
    ) -> Evidence:
        """Return the evidence for a layer, which counts as active without a reason against it.

        `list_reasons` stores the list even if it is empty, as the documents of the proxy and of sharing do.
        """
        listed = {"reasons": list(reasons)} if reasons or list_reasons else {}
        warned = {"warning": warning} if warning else {}
        return cls({"layer": layer, "active": not reasons, **listed, **(facts or {}), **warned})

    def below(
        self, layer: str, reasons: Sequence[str], facts: Mapping[str, Any] | None = None, *, list_reasons: bool = False
    ) -> Evidence:
        """Return the evidence for a layer above this one: the facts of both layers and the verdict of the upper one."""
        lower = {name: value for name, value in self.stored.items() if name != "reasons"}
        return Evidence({**lower, **Evidence.of(layer, reasons, facts, list_reasons=list_reasons).stored})

    def and_facts(self, facts: Mapping[str, Any]) -> Evidence:
        """Return the same evidence with more facts."""
        return Evidence({**self.stored, **facts})

    def to_dict(self) -> dict[str, Any]:
        """Return the document as it is stored."""
        return dict(self.stored)

    @property
    def layer(self) -> str:
        """The layer in question; `none` for the bare machine."""
        return str(self.stored.get("layer") or "")

    @property
    def active(self) -> bool | None:
        """Whether it was active; None if unknown."""
        active = self.stored.get("active")
        return active if isinstance(active, bool) else None

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons why it does not count as active."""
        return tuple(str(reason) for reason in self.stored.get("reasons") or ())

    @property
    def why_not(self) -> str:
        """All reasons in one line, for a layer that is not proven."""
        return "; ".join(self.reasons) or "no evidence"

    @property
    def compiler_warning(self) -> str:
        """What the software device's compiler warns of: there is none, or its cache was damaged; empty otherwise."""
        software = self.stored.get("software")
        return str(software.get("warning") or "") if isinstance(software, Mapping) else ""

    @property
    def warning(self) -> str:
        """A limit on what the numbers mean although the layer was active; empty if there is none."""
        return str(self.stored.get("warning") or "")

    @property
    def facts(self) -> dict[str, Any]:
        """The facts behind the verdict: pods, process ids, limits, counters."""
        return {name: value for name, value in self.stored.items() if name not in ANSWER_KEYS}

    def fact(self, name: str) -> Any:
        """Return one of the facts; None if it was not recorded."""
        return self.stored.get(name)


def unproven(tenants: Sequence[Evidence]) -> list[str]:
    """List the tenants without proof of the layer, with the reasons."""
    return [
        f"tenant {number}: {reason}"
        for number, evidence in enumerate(tenants, start=1)
        if not evidence.active
        for reason in evidence.reasons or ("no evidence",)
    ]


@dataclass(frozen=True)
class Proven:
    """One worker after its load: its environment's evidence and the description on which that is based."""

    evidence: Evidence
    described: Described


Explain: TypeAlias = Callable[[int, str], GputaxError | None]
"""Maps the exit code and last stderr output of a worker to an error; None if the environment knows no reason."""


class WorkerProcess(Protocol):
    """A started worker: `subprocess.Popen` or an object with the same interface."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None
    pid: int

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        ...

    def kill(self) -> None:
        """Kill it."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it exits."""
        ...


@runtime_checkable
class ExplainsItsEnd(Protocol):
    """A worker whose environment can explain why it exited: a pod was deleted, a host key is missing."""

    def explain(self, code: int, words: str) -> GputaxError | None:
        """Return the error to raise instead of the general one."""
        ...


class Environment(Protocol):
    """Where a worker runs: a place plus layers."""

    name: str

    def start(self) -> WorkerProcess:
        """Start a worker there."""
        ...

    def evidence(self, described: Described) -> Evidence:
        """Return the evidence that the place and its layers were active, based on the worker's description.

        After a measurement the description includes the worker's report on its driver.
        """
        ...


class LocalEnvironment(Environment, Protocol):
    """A local environment, in which any other program can run too."""

    note: str
    """A warning to print when the device was chosen automatically; set within `surroundings`."""

    def surroundings(self) -> AbstractContextManager[dict[str, str]]:
        """Yield the environment variables for a program; processes started for it end with the context."""
        ...
