"""The sharing document `sharing.json`: what tenants of one device got, who disturbs them, the bounds of each figure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from gputax.errors import ResultsError
from gputax.results.documents.base import DISTURBED, Document, Failure, WarningRecord
from gputax.text import printable

SHARING_NAME = "sharing.json"
TOKEN_FIGURES = (
    "of a language model: tokens_per_sec, and p50, p90 and p99 of ttft (from the start of a run to its first token) "
    "and tpot ((last - first token) / (tokens - 1)), such as ttft_p90_ms; null below the floor; empty without tokens"
)
Interval = tuple[float | None, float | None]


class TenantResult(Document):
    """One tenant in one cell, over the window in which all tenants ran."""

    tenant: int = Field(description="from 1")
    entitlement: str = Field(description="what it may use of the device, in words")
    entitlement_share: float | None = Field(description="the part of the device that it may use at most; null: unknown")
    threads: int | None = None
    inferences: int
    errors: int = 0
    throughput_per_s: float
    mean_ms: float
    p50_ms: float | None = Field(default=None, description="null below the sample floor (10)")
    p90_ms: float | None = Field(default=None, description="null below the sample floor (64)")
    p99_ms: float | None = Field(default=None, description="null below the sample floor (662)")
    tokens: dict[str, float | None] = Field(default_factory=dict, description=TOKEN_FIGURES)
    samples_file: str
    evidence: dict[str, Any] = Field(default_factory=dict)
    asked_compute: float | None = Field(default=None, description="share of compute that it asked for; null: none")
    asked_memory: float | None = Field(default=None, description="share of memory that it asked for; null: none")
    asked_exactly: bool | None = Field(default=None, description="the share is a cap as well; null: nothing was asked")
    memory_bytes: int | None = Field(default=None, description="what it could allocate; null: not tried")


class CrossCheck(Document):
    """The same mean as Prometheus tells it, by the users' own query."""

    query: str
    prometheus_ms: float
    ours_ms: float
    difference_percent: float


class SharedCell(Document):
    """So many tenants under one technique, for the n-th time."""

    cell: str
    technique: str
    tenants: int
    repeat: int
    situation: Literal["", "whole", "alone", "equals", "greedy"] = Field(
        default="", description="where shares were asked for: who runs beside the measured tenant"
    )
    number: int = Field(default=0, description="where shares were asked for: the measured tenant; 0: all of them")
    session: int = 1
    started_at: str
    window_s: float = Field(description="how long all tenants ran together, after the warm-up")
    overlap_share: float = Field(description="that window over the cell's time from release to the last tenant's end")
    aggregate_per_s: float
    mean_ms: float | None = Field(default=None, description="over all tenants' inferences, as the users' query says it")
    p50_ms: float | None = Field(default=None, description="over all tenants' inferences; null below the floor (10)")
    p90_ms: float | None = Field(default=None, description="the same; null below the floor (64)")
    p99_ms: float | None = Field(default=None, description="the same; null below the floor (662)")
    tokens: dict[str, float | None] = Field(default_factory=dict, description=TOKEN_FIGURES)
    jain: float = Field(description="1: all tenants got the same; 1/N: one got all")
    joules_per_inference: float | None = Field(
        default=None, description="energy of the whole device in the window over all tenants' inferences in it"
    )
    results: tuple[TenantResult, ...]
    evidence: dict[str, Any] = Field(default_factory=dict, description="of the technique, over all tenants")
    switched_s: float | None = Field(default=None, description="how long the switch to the technique took before it")
    cross_check: CrossCheck | None = None
    valid: bool
    disturbed: tuple[str, ...] = Field(default=(), description=DISTURBED)
    warnings: tuple[WarningRecord, ...] = ()


class SharedFigure(Document):
    """A figure over the repeats of a cell, with its 95 % interval; bounds that do not exist are null."""

    value: float | None = Field(description="null where too few samples refuse it")
    ci95: Interval | None = None


class SharedRow(Document):
    """One technique with so many tenants, over all valid repeats."""

    technique: str
    tenants: int
    repeats: int
    disturbed: int = Field(default=0, description="how many of these repeats were measured on a disturbed machine")
    entitlement: str
    entitlement_share: float | None = None
    mean_ms: SharedFigure
    p50_ms: SharedFigure
    p90_ms: SharedFigure
    p99_ms: SharedFigure
    worst_tenant_mean_ms: SharedFigure
    aggregate_per_s: SharedFigure
    jain: SharedFigure
    joules_per_inference: SharedFigure | None = Field(
        default=None, description="energy of the whole device over all tenants' inferences; null: not counted"
    )
    slowdown: SharedFigure = Field(description="mean latency over that of one tenant of the same technique")


class ObtainedRow(Document):
    """The share that a tenant asked for, against the share that it obtained beside others."""

    technique: str
    resource: Literal["compute", "memory"]
    tenant: int = Field(description="from 1")
    same_as: tuple[int, ...] = Field(default=(), description="tenants that ask for the same and were not measured here")
    situation: Literal["alone", "equals", "greedy"]
    asked: float | None = Field(description="part of the whole device; null: no share of it was asked for")
    exactly: bool = Field(description="the share is a cap as well: more than that is a failure, too")
    obtained: SharedFigure = Field(description="part of what one tenant with the whole device got in the same repeat")
    repeats: int
    disturbed: int = Field(default=0, description="how many of these repeats were measured on a disturbed machine")
    verdict: Literal["pass", "fail", "inconclusive", "not comparable"] | None = Field(
        description="null: no share was asked for"
    )
    reason: str = ""


class NeighbourRow(Document):
    """A measured tenant beside one kind of neighbour."""

    technique: str
    victim: str = Field(description="workload and scenario of the measured tenant")
    aggressor: Literal["compute", "memory", "copies", "launches", "crash"]
    pairs: int
    alone_ms: float
    beside_ms: float
    slowdown_percent: SharedFigure
    p99_slowdown_percent: SharedFigure | None = None
    errors: int = 0
    valid: bool = True
    disturbed: tuple[str, ...] = Field(default=(), description=DISTURBED)
    warnings: tuple[WarningRecord, ...] = ()


class IsolationRow(Document):
    """One promise of isolation, held against what happened."""

    technique: str
    check: Literal["memory quota holds", "no foreign memory readable", "a crash stays with its tenant"]
    passed: bool | None = Field(description="null: it could not be tried here, and the text says why")
    text: str
    evidence: dict[str, Any] = Field(default_factory=dict)


class SharingRecord(Document):
    """One sharing experiment in one directory."""

    schema_version: Literal[1] = 1
    kind: Literal["sharing"] = "sharing"
    gputax_version: str
    timestamp: str
    complete: bool
    sessions: tuple[str, ...] = ()
    plan_id: str
    command: str = Field(default="", description="how to do it again")
    plan: dict[str, Any] = Field(description="techniques, tenants, repeats, warm-up, window, slices, seed, setup")
    cells_planned: tuple[str, ...] = ()
    place: str
    workload: str
    device: str | None = None
    device_label: str
    claim: str = ""
    fingerprint: dict[str, Any] = Field(default_factory=dict)
    cells: tuple[SharedCell, ...] = ()
    accepts_disturbed: bool = Field(default=False, description="disturbed cells were accepted: they may be ranked")
    rows: tuple[SharedRow, ...] = ()
    obtained: tuple[ObtainedRow, ...] = Field(default=(), description="asked shares against obtained ones (--shares)")
    neighbours: tuple[NeighbourRow, ...] = ()
    isolation: tuple[IsolationRow, ...] = ()
    failures: tuple[Failure, ...] = ()
    warnings: tuple[WarningRecord, ...] = ()


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
    for number, obtained in enumerate(record.obtained):
        yield from _obtained(obtained, f"obtained.{number}")
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


def _obtained(row: ObtainedRow, way: str) -> Iterator[Held]:
    way = f"{way} ({row.technique}, tenant {row.tenant})"
    yield Held(f"{way}.asked", row.asked, most=1.0)
    yield Held(f"{way}.obtained.value", row.obtained.value)
    yield Held(f"{way}.tenant", row.tenant, least=1)
    yield Held(f"{way}.repeats", row.repeats)


def _neighbour(row: NeighbourRow, way: str) -> Iterator[Held]:
    way = f"{way} ({row.technique} beside {row.aggressor})"
    yield Held(f"{way}.alone_ms", row.alone_ms, positive=row.valid)
    yield Held(f"{way}.beside_ms", row.beside_ms, positive=row.valid)
    yield Held(f"{way}.pairs", row.pairs)
    yield Held(f"{way}.errors", row.errors)
    yield Held(f"{way}.slowdown_percent.value", row.slowdown_percent.value, least=-100.0)
    if row.p99_slowdown_percent is not None:
        yield Held(f"{way}.p99_slowdown_percent.value", row.p99_slowdown_percent.value, least=-100.0)
