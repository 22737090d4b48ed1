"""The comparison document: the result of a duet or a compare, metric by metric, with everything a report shows."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from gputax.results.documents.base import DISTURBED, Document, WarningRecord

COMPARISON_NAME = "comparison.json"
RESOLUTION_NAME = "resolution.json"
Verdict = Literal["pass", "fail", "inconclusive", "not comparable"]
ByValue = Literal["over budget by value", "within budget by value"]
Spread = Literal["within one run", "between repeats", "from another run"]


class Side(Document):
    """One of the things that are compared."""

    label: str = Field(description="how tables and charts name this side, e.g. bare or k8s+proxy")
    environment: str
    device: str | None = None
    device_label: str
    source: str = Field(description="directory or file it came from, or the command that measured it")
    format: str = Field(
        description="gputax, loadgen, older-json, text, pod-log, duet, or the load generator that wrote it"
    )
    measured: str = Field(default="", description="when, in ISO 8601; empty if the document is the measurement")
    measured_by: Literal["file", "mtime"] = Field(
        default="file", description="mtime: the file has no date, and this is when it was written"
    )
    fingerprint: dict[str, Any] = Field(default_factory=dict)
    evidence: dict[str, Any] = Field(default_factory=dict)
    recorded: dict[str, Any] = Field(
        default_factory=dict,
        description="duet: by workload, what its workers recorded beside their times: limits, weights, clocks, memory, "
        "and per run the CPU time, run-queue wait, throttling and steal in ms",
    )


class Explanation(Document):
    """Why one side of a duet is slower, as far as what both sides recorded tells."""

    workload: str
    slower: str = Field(description="label of the slower side")
    code: str | None = Field(description="a name of measure.duet.causes; null if no recorded cause explains it")
    text: str


class ComparedMetric(Document):
    """One metric of one cell, base against other. Bounds that do not exist are null."""

    workload: str
    scenario: str = Field(description="as on the command line: offline, server, single-stream, …")
    batch_size: int | None = None
    metric: str = Field(description="a name of plan.metrics")
    unit: str
    base: str = Field(description="label of the base side")
    other: str = Field(description="label of the other side")
    base_value: float | None
    other_value: float | None
    overhead_percent: float | None = Field(description="positive: the other side is worse")
    ci95_percent: tuple[float | None, float | None] | None = None
    overhead_absolute: float | None = Field(default=None, description="in the metric's unit, for budgets such as +2 ms")
    ci95_absolute: tuple[float | None, float | None] | None = None
    budget: float | None = None
    budget_unit: Literal["%", "ms"] | None = None
    budget_source: str | None = None
    verdict: Verdict
    by_value: ByValue | None = Field(
        default=None, description="for `inconclusive`: on which side of the budget the value lies, without its spread"
    )
    reason: str
    decides: bool = Field(
        default=True, description="false for a percentile that too few samples refuse and that no budget names"
    )
    loss: Literal["time", "throughput"] | None = Field(
        default=None,
        description="formula of overhead_percent: time is new/old - 1, throughput is 1 - new/old; null in files of "
        "earlier versions, which used old/new - 1 for throughput",
    )
    spread: Spread | None = Field(
        default=None, description="what the interval of a comparison without pairs covers; null without an interval"
    )
    spread_source: str | None = Field(default=None, description="the run whose repeats are the spread, if another")
    repeats: tuple[int, int] | None = Field(default=None, description="repeats of base and other, without pairs")
    paired: bool
    pairs: int | None = None
    pairs_needed: int | None = None
    seconds_needed: float | None = Field(default=None, description="how long a duet would take to decide it")
    restarts: int | None = Field(default=None, description="how many processes each side had")
    bounds: tuple[float | None, float | None] | None = Field(
        default=None, description="the one-sided bounds that were compared with the budget, in its unit"
    )
    differences: tuple[str, ...] = Field(default=(), description="why the two are not comparable")
    claim: str = ""
    warnings: tuple[WarningRecord, ...] = ()


class PairSeries(Document):
    """The pairs of a duet over time, for the chart of pairs; at most a few hundred points."""

    workload: str
    scenario: str
    metric: str
    time_s: tuple[float, ...]
    overhead_percent: tuple[float, ...]
    b_first: tuple[bool, ...]


class Resolution(Document):
    """The A/A control: how small an overhead this machine can tell from nothing."""

    half_width_percent: float
    ci95_percent: tuple[float | None, float | None]
    pairs: int
    seconds: float
    contains_zero: bool
    restarts: int | None = None
    process_luck_percent: float | None = Field(
        default=None, description="standard deviation between processes of the same program, beyond their pairs' noise"
    )


class Comparison(Document):
    """One comparison: the answer, and what it rests on."""

    schema_version: Literal[1] = 1
    kind: Literal["duet", "compare"]
    gputax_version: str
    timestamp: str
    question: str
    command: str = Field(description="how to do it again")
    sides: tuple[Side, ...] = Field(description="the base first")
    metrics: tuple[ComparedMetric, ...]
    resolution: Resolution | None = None
    pair_series: tuple[PairSeries, ...] = ()
    settings: dict[str, Any] = Field(default_factory=dict, description="slot, drop rule, restarts, seeds, stopping")
    disturbed: tuple[str, ...] = Field(default=(), description=f"duet: {DISTURBED}")
    explanations: tuple[Explanation, ...] = Field(
        default=(), description="duet: one for each workload in which the sides surely differ"
    )
    warnings: tuple[WarningRecord, ...] = ()
