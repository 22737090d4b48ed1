"""The slots of a neighbour experiment: their order, the victim's runs that count, and the pairs; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gputax.errors import CellError
from gputax.measure.sizing import dropped_runs
from gputax.text import digits

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
# Alone, beside, beside, alone: a steady drift affects both halves equally. Every second restart is mirrored.
ORDER = (False, True, True, False)


@dataclass(frozen=True)
class VictimSlot:
    """The victim's runs in one slot."""

    restart: int
    number: int
    beside: bool
    start_ns: Int64Array
    end_ns: Int64Array
    counted: npt.NDArray[np.bool_]

    @property
    def latency_ns(self) -> FloatArray:
        """The counted latencies."""
        return (self.end_ns - self.start_ns)[self.counted].astype(np.float64)


@dataclass(frozen=True)
class NeighbourPair:
    """The same victim alone and beside its neighbour, in adjacent slots."""

    alone_ns: FloatArray
    beside_ns: FloatArray
    beside_first: bool
    time_s: float
    restart: int


def slot_order(restart: int) -> tuple[bool, ...]:
    """Return for each slot of a restart, counted from 1, whether the neighbour works."""
    return ORDER if restart % 2 else tuple(not beside for beside in ORDER)


def counted_slot(
    restart: int, number: int, columns: dict[str, Int64Array], call_ns: float, span_ns: tuple[int, int] | None
) -> VictimSlot:
    """Mark the runs that count: not the first ones and, beside a neighbour, only those completely inside its span."""
    start_ns, end_ns = columns["start_ns"], columns["end_ns"]
    counted = np.ones(len(start_ns), dtype=np.bool_)
    counted[: max(1, dropped_runs(call_ns / 1e9))] = False  # the first may overlap the neighbour's start or stop
    if span_ns is not None:
        counted &= (start_ns >= span_ns[0]) & (end_ns <= span_ns[1])
    return VictimSlot(restart, number, span_ns is not None, start_ns, end_ns, counted)


def no_run_counts(slot: VictimSlot, slot_s: float) -> CellError:
    """Return the error for a slot without a number."""
    where = "beside its neighbour" if slot.beside else "alone"
    return CellError(
        f"no run of the victim fits completely in a slot of {digits(slot_s, 3)} s {where}",
        where=f"restart {slot.restart}, slot {slot.number + 1}",
        next_step=f"use --window {2 * slot_s:.0f}s",
    )


def pairs_of(slots: Iterable[VictimSlot]) -> list[NeighbourPair]:
    """Return neighbouring slots as pairs; a slot without its other half is dropped."""
    known = {(slot.restart, slot.number): slot for slot in slots}
    pairs = []
    for (restart, number), first in sorted(known.items()):
        second = known.get((restart, number + 1))
        if number % 2 or second is None or first.beside == second.beside:
            continue
        alone, beside = (second, first) if first.beside else (first, second)
        time_s = float(first.start_ns[0]) / 1e9
        pairs.append(NeighbourPair(alone.latency_ns, beside.latency_ns, first.beside, time_s, restart))
    return pairs


def sample_columns(slots: Iterable[VictimSlot]) -> dict[str, Int64Array]:
    """Return every run of the victim, counted or not, as the columns that are kept."""
    known = list(slots)

    def whole(values: list[Int64Array]) -> Int64Array:
        return np.concatenate(values).astype(np.int64) if values else np.zeros(0, dtype=np.int64)

    def repeated(value: int, slot: VictimSlot) -> Int64Array:
        return np.full(len(slot.start_ns), value, dtype=np.int64)

    return {
        "restart": whole([repeated(slot.restart, slot) for slot in known]),
        "slot": whole([repeated(slot.number, slot) for slot in known]),
        "beside": whole([repeated(int(slot.beside), slot) for slot in known]),
        "start_ns": whole([slot.start_ns for slot in known]),
        "end_ns": whole([slot.end_ns for slot in known]),
        "counted": whole([slot.counted.astype(np.int64) for slot in known]),
    }
