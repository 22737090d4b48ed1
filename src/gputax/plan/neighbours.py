"""The kinds of neighbours: what each does on which device, and the setup of its worker."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal, get_args

from gputax.errors import UsageError, unknown_name
from gputax.plan.cells import Setup, scenario_named

AggressorKind = Literal["compute", "memory", "copies", "launches", "crash"]
Family = Literal["cpu", "driver"]
KINDS: tuple[AggressorKind, ...] = get_args(AggressorKind)
VICTIMS = ("single-stream",)
ENGINE = "neighbour"


@dataclass(frozen=True)
class Aggressor:
    """One kind of neighbour on one kind of device."""

    kind: AggressorKind
    family: Family
    about: str


# `cpu`: the device is the processor. `driver`: any device behind the CUDA driver API, a GPU's or the software device's.
AGGRESSORS: dict[tuple[str, str], Aggressor] = {
    (aggressor.kind, aggressor.family): aggressor
    for aggressor in (
        Aggressor("compute", "cpu", "matrix products on all cores that it may use"),
        Aggressor("memory", "cpu", "streams over buffers larger than the caches, on all cores that it may use"),
        Aggressor("copies", "cpu", "100 MB after 100 MB through a pipe, from one buffer to another"),
        Aggressor("launches", "cpu", "a storm of tiny tasks, each woken by the kernel in another thread"),
        Aggressor("crash", "cpu", "matrix products until it reads address 0 and dies by SIGSEGV; started again"),
        Aggressor("compute", "driver", "kernels of multiply-adds, one after the other"),
        Aggressor("memory", "driver", "allocations, and copies and fills within the device's memory"),
        Aggressor("copies", "driver", "100 MB to the device and 100 MB back, without end"),
        Aggressor("launches", "driver", "a storm of launches of 32 threads"),
        Aggressor("crash", "driver", "kernels until one writes where it may not, then death by SIGKILL; started again"),
    )
}


def family_of(device: str) -> Family:
    """Return the column of the table for a device."""
    return "cpu" if device == "cpu" else "driver"


def checked_kinds(names: tuple[str, ...]) -> tuple[AggressorKind, ...]:
    """Return the kinds, each once; an unknown one is a usage error."""
    if not names:
        raise UsageError("--aggressor is empty", next_step=f"e.g. --aggressor {','.join(KINDS)}")
    for name in names:
        if name not in KINDS:
            raise unknown_name("aggressor", name, KINDS)
    return tuple(kind for kind in KINDS if kind in names)


def checked_victim(scenario: str) -> str:
    """Return the victim's scenario; only closed loops of single requests can be paired with a neighbour."""
    return scenario_named(scenario, "scenario of the victim", VICTIMS)


def aggressor_setup(kind: str, tenant: Setup, device: str, threads: int, crash_after_ms: int = 0) -> Setup:
    """Return the setup that makes a tenant's worker a neighbour of this kind on the victim's device."""
    options = f"kind={kind}" + (f",crash_after_ms={crash_after_ms}" if crash_after_ms else "")
    return dataclasses.replace(
        tenant,
        workload=f"{ENGINE}:{kind}",
        engine=f"{ENGINE}:{options}",
        device=device,
        threads=threads,
        weights="",
        dataset="",
        sample_count=1,
        max_batch=1,
    )
