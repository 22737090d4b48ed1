"""The operations of the workload `micro`: basic driver operations, one cell each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gputax.plan.engines import DEFAULT_ENGINE

MICRO = "micro"
ENGINE = "driver"
Kind = Literal["operation", "launch", "synchronise", "allocate", "copy-in", "copy-out"]
KIB, MIB = 1024, 1024 * 1024
ALLOCATION_BYTES = MIB
SMALL_COPY_BYTES = 4 * KIB
# Users have measured 100 MB by hand; the other sizes separate the cost per call from the bandwidth.
COPY_SIZES: dict[str, int] = {
    "4KiB": 4 * KIB,
    "64KiB": 64 * KIB,
    "1MiB": MIB,
    "16MiB": 16 * MIB,
    "100MB": 100_000_000,
}
SCENARIOS = ("saturate", "single-stream")


@dataclass(frozen=True)
class MicroOperation:
    """One operation; one run of the engine does it once."""

    name: str
    kind: Kind
    title: str
    bytes_per_run: int = 0
    """The bytes for the bandwidth; 0 if there is none."""

    @property
    def bandwidth_metric(self) -> str | None:
        """The name of its bandwidth metric in plan.metrics."""
        return {"copy-in": "host_to_device", "copy-out": "device_to_host"}.get(self.kind)


def _copies(kind: Kind, words: str) -> list[MicroOperation]:
    return [MicroOperation(f"{MICRO}:{kind}-{size}", kind, f"{size} {words}", n) for size, n in COPY_SIZES.items()]


OPERATIONS: dict[str, MicroOperation] = {
    operation.name: operation
    for operation in (
        MicroOperation(f"{MICRO}:operation", "operation", "two 4 KiB copies in, launch, synchronise, 4 KiB copy back"),
        MicroOperation(f"{MICRO}:launch", "launch", "launch of 32 threads, and synchronise"),
        MicroOperation(f"{MICRO}:synchronise", "synchronise", "synchronise with nothing to wait for"),
        MicroOperation(f"{MICRO}:allocate", "allocate", "1 MiB allocated and freed"),
        *_copies("copy-in", "from host to device"),
        *_copies("copy-out", "from device to host"),
    )
}


def engine_for(workload: str, given: str) -> str:
    """Return the given engine, else the workload's default."""
    return given or (ENGINE if workload in OPERATIONS else DEFAULT_ENGINE)


def is_micro(workload: str) -> bool:
    """Whether the name is one of `micro`'s operations."""
    return workload in OPERATIONS


def expanded(workloads: tuple[str, ...]) -> tuple[str, ...]:
    """Return the workloads with `micro` and groups such as `micro:copy-in` expanded, each once."""
    found: list[str] = []
    for name in workloads:
        group = [each for each in OPERATIONS if name == MICRO or OPERATIONS[each].kind == name.partition(":")[2]]
        found += group if name.split(":")[0] == MICRO and name not in OPERATIONS and group else [name]
    return tuple(dict.fromkeys(found))


def known_names(workloads: tuple[str, ...]) -> tuple[str, ...]:
    """Return every valid name: the models, `micro`, its groups and its operations."""
    groups = (f"{MICRO}:{operation.kind}" for operation in OPERATIONS.values())
    return tuple(dict.fromkeys((*workloads, MICRO, *groups, *OPERATIONS)))
