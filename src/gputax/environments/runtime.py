"""The OCI runtime of a container or pod: what it is by name, by its program and by the kernel that a worker sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gputax.environments.environment import Described
from gputax.plan.runtimes import Kernel, RuntimeFamily, runtime_family

OWN_KERNELS: tuple[Kernel, ...] = ("gvisor", "guest")
_KERNELS: dict[Kernel, str] = {
    "host": "the machine's own kernel",
    "gvisor": "gVisor's kernel",
    "guest": "a virtual machine's kernel",
}


@dataclass(frozen=True)
class SeenRuntime:
    """A runtime as it is known from outside; what could not be asked is empty."""

    name: str
    """What the environment asks for: a runtime's name or a RuntimeClass; empty for the default one."""
    program: str = ""
    """What starts it: the program's path, or a RuntimeClass' handler."""
    version: str = ""
    """The first line that the program prints for `--version`."""
    kernel: str = ""
    """The release of the kernel of the machine below."""

    @property
    def family(self) -> RuntimeFamily | None:
        """Its family by what it is asked for; else by what starts it."""
        return runtime_family(self.name) or runtime_family(self.program)

    def facts(self, described: Described) -> dict[str, Any]:
        """Return what both sides say of the runtime, as stored with every result."""
        family = self.family
        return {
            "runtime": self.name or None,
            "runtime_family": family.name if family else None,
            "runtime_program": self.program or None,
            "runtime_version": self.version or None,
            "host_kernel": self.kernel or None,
            "kernel": described.kernel,
            "kernel_banner": described.host.get("kernel_banner"),
            "sandbox": described.sandbox,
        }


def program_reasons(seen: SeenRuntime) -> list[str]:
    """List why what starts the containers is not of the family that its name says; a name of somebody's own may be."""
    family = runtime_family(seen.name)
    if family is None:
        return []
    said = {"handler or program": seen.program, "program by its --version": (seen.version.split() or [""])[0]}
    return [
        f"{seen.name} is {other.title}, not {family.title}: its {what} is {text}"
        for what, text in said.items()
        if (other := runtime_family(text)) is not None and other != family
    ]


def kernel_reasons(seen: SeenRuntime, described: Described) -> list[str]:
    """List why the kernel that the worker sees is not the one that this runtime gives a program."""
    family = seen.family
    if family is None:
        return []
    wanted = _KERNELS[family.kernel]
    own = seen.kernel and described.kernel == seen.kernel
    if family.kernel == "gvisor":
        right = described.sandbox == "gvisor" and not own
    elif family.kernel == "host":
        right = described.sandbox is None and (not seen.kernel or bool(own))
    elif not seen.kernel:
        return [f"{seen.name or family.title}: the release of the kernel below is not known, so {wanted} is not proven"]
    else:
        right = described.sandbox != "gvisor" and not own
    if right:
        return []
    banner = str(described.host.get("kernel_banner") or described.kernel or "nothing")
    below = f", the machine's is {seen.kernel}" if seen.kernel else ""
    return [f"under {family.title} a program sees {wanted}, but the worker sees {banner!r}{below}"]


def hides_limits(described: Described) -> bool:
    """Whether the worker sees no CPU quota because a kernel of its own answers it, which has no control groups."""
    return described.quota_cpus is None and described.sandbox is not None


def told_reasons(described: Described, cpus: float, outside: float | None) -> list[str]:
    """List why the limit of a worker that cannot see it is not proven: what it was told, what is set from outside."""
    reasons = []
    if described.told_cpus != cpus:
        told = "nothing" if described.told_cpus is None else f"{described.told_cpus:g}"
        reasons.append(f"the sandbox hides its CPU limit; the worker was told {told} instead of {cpus:g}")
    return [*reasons, *outside_reasons(cpus, outside)]


def outside_reasons(cpus: float, outside: float | None) -> list[str]:
    """List why the limit of a sandbox is not proven from outside: what it shows inside is only what it was told."""
    if outside is None:
        return [f"from outside no CPU limit of the sandbox is seen, instead of {cpus:g}"]
    return [f"from outside the CPU limit is {outside:g}, not {cpus:g}"] if abs(outside - cpus) > 0.01 * cpus else []


def nano_cpus(host_config: Mapping[str, Any]) -> float | None:
    """Return the CPU limit that a container engine has set, from what its `inspect` shows; None without one."""
    nano = host_config.get("NanoCpus")
    if isinstance(nano, int) and nano > 0:
        return nano / 1e9
    quota, period = host_config.get("CpuQuota"), host_config.get("CpuPeriod")
    if isinstance(quota, int) and isinstance(period, int) and quota > 0 and period > 0:
        return quota / period
    return None
