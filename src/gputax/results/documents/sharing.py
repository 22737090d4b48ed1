"""The sharing document `sharing.json`: what tenants of one device got, by technique, and who disturbs them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from gputax.results.documents.base import Document, Failure, WarningRecord

SHARING_NAME = "sharing.json"
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
    samples_file: str
    evidence: dict[str, Any] = Field(default_factory=dict)


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
    session: int = 1
    started_at: str
    window_s: float = Field(description="how long all tenants ran together, after the warm-up")
    overlap_share: float = Field(description="that window over the cell's time from release to the last tenant's end")
    aggregate_per_s: float
    mean_ms: float | None = Field(default=None, description="over all tenants' inferences, as the users' query says it")
    p50_ms: float | None = Field(default=None, description="over all tenants' inferences; null below the floor (10)")
    p90_ms: float | None = Field(default=None, description="the same; null below the floor (64)")
    p99_ms: float | None = Field(default=None, description="the same; null below the floor (662)")
    jain: float = Field(description="1: all tenants got the same; 1/N: one got all")
    results: tuple[TenantResult, ...]
    evidence: dict[str, Any] = Field(default_factory=dict, description="of the technique, over all tenants")
    switched_s: float | None = Field(default=None, description="how long the switch to the technique took before it")
    cross_check: CrossCheck | None = None
    valid: bool
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
    entitlement: str
    entitlement_share: float | None = None
    mean_ms: SharedFigure
    p50_ms: SharedFigure
    p90_ms: SharedFigure
    p99_ms: SharedFigure
    worst_tenant_mean_ms: SharedFigure
    aggregate_per_s: SharedFigure
    jain: SharedFigure
    slowdown: SharedFigure = Field(description="mean latency over that of one tenant of the same technique")


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
    rows: tuple[SharedRow, ...] = ()
    neighbours: tuple[NeighbourRow, ...] = ()
    isolation: tuple[IsolationRow, ...] = ()
    failures: tuple[Failure, ...] = ()
    warnings: tuple[WarningRecord, ...] = ()
