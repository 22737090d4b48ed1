"""The bounds of every figure in a sharing document: an impossible value is rejected by name; pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gputax.errors import ResultsError
from gputax.results.documents.sharing import NeighbourRow, SharedCell, SharedRow, SharingRecord
from gputax.results.importers.source import printable

LATENCIES = ("mean_ms", "p50_ms", "p90_ms", "p99_ms")
# A sum of floats may differ from 1 in its last digits.
ROUNDING = 1e-9
NEXT_STEP = "measure again, or copy the file again: gputax never writes such a value"


@dataclass(frozen=True)
class Held:
    """One figure of a document and its bounds."""

    field: str
    value: float | None
    least: float = 0.0
    most: float = math.inf
    positive: bool = False
    """A valid cell has a finite number above zero here."""

    @property
    def wrong(self) -> str:
        """The expected range; empty if the value is inside."""
        if self.value is None:
            return ""
        if self.positive and not (math.isfinite(self.value) and self.value > 0.0):
            return "above 0"
        # NaN is shown as a dash.
        if self.value < self.least - ROUNDING:
            return f"at least {self.least:g}" if math.isinf(self.most) else f"from {self.least:g} to {self.most:g}"
        return f"from {self.least:g} to {self.most:g}" if self.value > self.most + ROUNDING else ""


def refuse_nonsense(record: SharingRecord, where: str) -> None:
    """Raise at the first impossible figure."""
    for held in figures_of(record):
        wrong = held.wrong
        if wrong:
            raise ResultsError(
                f"{printable(held.field, 600)} is {held.value:g}, but must be {wrong}", where=where, next_step=NEXT_STEP
            )


def figures_of(record: SharingRecord) -> Iterator[Held]:
    """Yield every bounded figure with its path in the document."""
    for number, cell in enumerate(record.cells):
        yield from _cell(cell, f"cells.{number}")
    for number, row in enumerate(record.rows):
        yield from _row(row, f"rows.{number}")
    for number, beside in enumerate(record.neighbours):
        yield from _neighbour(beside, f"neighbours.{number}")


def _cell(cell: SharedCell, way: str) -> Iterator[Held]:
    way = f"{way} ({cell.cell})"
    for name in LATENCIES:
        yield Held(f"{way}.{name}", getattr(cell, name), positive=cell.valid)
    yield Held(f"{way}.aggregate_per_s", cell.aggregate_per_s, positive=cell.valid)
    yield Held(f"{way}.tenants", cell.tenants, least=1)
    yield Held(f"{way}.window_s", cell.window_s)
    yield Held(f"{way}.overlap_share", cell.overlap_share, most=1.0)
    yield Held(f"{way}.jain", cell.jain, most=1.0)
    yield Held(f"{way}.switched_s", cell.switched_s)
    if cell.cross_check is not None:
        yield Held(f"{way}.cross_check.prometheus_ms", cell.cross_check.prometheus_ms)
        yield Held(f"{way}.cross_check.ours_ms", cell.cross_check.ours_ms)
    for number, tenant in enumerate(cell.results):
        own = f"{way}.results.{number}"
        for name in LATENCIES:
            yield Held(f"{own}.{name}", getattr(tenant, name), positive=cell.valid)
        yield Held(f"{own}.inferences", tenant.inferences, positive=cell.valid)
        yield Held(f"{own}.throughput_per_s", tenant.throughput_per_s, positive=cell.valid)
        yield Held(f"{own}.errors", tenant.errors)
        yield Held(f"{own}.entitlement_share", tenant.entitlement_share, most=1.0)


def _row(row: SharedRow, way: str) -> Iterator[Held]:
    way = f"{way} ({row.technique}, {row.tenants})"
    for name in (*LATENCIES, "worst_tenant_mean_ms", "aggregate_per_s", "slowdown"):
        yield Held(f"{way}.{name}.value", getattr(row, name).value, positive=True)
    yield Held(f"{way}.jain.value", row.jain.value, most=1.0)
    yield Held(f"{way}.tenants", row.tenants, least=1)
    yield Held(f"{way}.repeats", row.repeats)
    yield Held(f"{way}.entitlement_share", row.entitlement_share, most=1.0)


def _neighbour(row: NeighbourRow, way: str) -> Iterator[Held]:
    way = f"{way} ({row.technique} beside {row.aggressor})"
    yield Held(f"{way}.alone_ms", row.alone_ms, positive=row.valid)
    yield Held(f"{way}.beside_ms", row.beside_ms, positive=row.valid)
    yield Held(f"{way}.pairs", row.pairs)
    yield Held(f"{way}.errors", row.errors)
    yield Held(f"{way}.slowdown_percent.value", row.slowdown_percent.value, least=-100.0)
    if row.p99_slowdown_percent is not None:
        yield Held(f"{way}.p99_slowdown_percent.value", row.p99_slowdown_percent.value, least=-100.0)
