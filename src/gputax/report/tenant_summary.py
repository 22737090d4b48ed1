"""The summary of one tenant as a line or as JSON, and its line of progress."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from gputax import __version__
from gputax.plan.claims import claim
from gputax.plan.workloads import workload_facts
from gputax.stats.percentiles import percentile
from gputax.text import milliseconds, number
from gputax.worker.tenant.client import Course, TenantPlan
from gputax.worker.tenant.tally import Counts, Tally


@dataclass(frozen=True)
class Summary:
    """One tenant's figures; a percentile that has too few runs behind it is None."""

    workload: str
    engine: str
    device: str
    device_label: str
    technique: str
    batch: int
    rate_per_s: float | None
    seconds: float
    runs: int
    inferences: int
    inferences_per_s: float | None
    mean_ms: float | None
    min_ms: float | None
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    percentile_runs: int
    """How many runs the percentiles are of: at most the last 65,536."""
    errors: int
    target_ms: float | None
    within_target: int | None
    unserved: int | None
    """Arrivals that still waited at the end; they are in no other figure."""
    ended_by: str
    error: str | None
    metrics: str
    claim: str
    version: str = __version__

    @staticmethod
    def of(
        plan: TenantPlan, tally: Tally, course: Course, url: str, ended_by: str, error: BaseException | None
    ) -> Summary:
        """Take the figures of a tenant that has ended."""
        counts, last_ns = tally.counts(), tally.last_latencies_ns()
        some = counts.runs > 0
        device = course.labels.get("device", plan.setup.device)
        percentiles = {p: percentile(last_ns, p) if some else None for p in (0.50, 0.90, 0.99)}
        facts, seconds = workload_facts(plan.setup.workload), course.seconds
        engine = plan.setup.engine.partition(":")[0]
        weights = "" if plan.setup.weights or plan.setup.own.file else "seeded"
        label = course.labels.get("device_label", "nothing measured yet")
        words = claim(
            "saturate",
            engine,
            device,
            weights,
            official=False,
            is_mlperf_model=facts.is_mlperf_model,
            device_name=label,
        )
        return Summary(
            workload=plan.setup.workload,
            engine=plan.setup.engine,
            device=device,
            device_label=label,
            technique=course.labels.get("technique", plan.technique),
            batch=plan.batch,
            rate_per_s=plan.rate_per_s or None,
            seconds=seconds,
            runs=counts.runs,
            inferences=counts.inferences,
            inferences_per_s=counts.inferences / seconds if some and seconds else None,
            mean_ms=counts.sum_ns / counts.runs / 1e6 if some else None,
            min_ms=counts.min_ns / 1e6 if some else None,
            p50_ms=_ms(percentiles[0.50]),
            p90_ms=_ms(percentiles[0.90]),
            p99_ms=_ms(percentiles[0.99]),
            max_ms=counts.max_ns / 1e6 if some else None,
            percentile_runs=len(last_ns),
            errors=counts.errors,
            target_ms=tally.target_ns / 1e6 if tally.target_ns else None,
            within_target=counts.within_target if tally.target_ns else None,
            unserved=course.unserved if plan.rate_per_s else None,
            ended_by=ended_by if error is None else "error",
            error=None if error is None else str(error),
            metrics=url,
            claim=words if not plan.rate_per_s else words.replace("closed loop", "Poisson arrivals"),
        )

    def to_json(self) -> str:
        """Return the summary as one JSON object."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False, indent=2)


def one_line(summary: Summary) -> str:
    """Return the summary for people."""
    if not summary.runs:
        return f"{summary.workload} on {summary.device_label}: no inference was counted, {summary.errors} errors"
    parts = [
        f"{summary.workload} on {summary.device_label}: {summary.inferences} inferences in {summary.seconds:.1f} s",
        f"{number(summary.inferences_per_s)}/s",
        f"mean {milliseconds(summary.mean_ms)}",
        *(
            f"{name} {milliseconds(value)}"
            for name, value in (("p50", summary.p50_ms), ("p90", summary.p90_ms), ("p99", summary.p99_ms))
            if value is not None
        ),
    ]
    if summary.target_ms is not None and summary.within_target is not None:
        share = 100 * summary.within_target / summary.inferences
        parts.append(f"{number(share)} % within {milliseconds(summary.target_ms)}")
    if summary.unserved:
        parts.append(f"{summary.unserved} arrivals unserved: the device is slower than the rate")
    parts.append(f"{summary.errors} errors")
    return ", ".join(parts)


def progress_line(counts: Counts, runs: int, sum_ns: int, seconds: float) -> str:
    """Return how the last seconds went."""
    errors = f", {counts.errors} errors" if counts.errors else ""
    if not runs or not seconds:
        return f"    {counts.inferences} inferences{errors}"
    return (
        f"    {counts.inferences} inferences, {number(runs / seconds)} runs/s, "
        f"mean {milliseconds(sum_ns / runs / 1e6)} in the last {seconds:.0f} s{errors}"
    )


def _ms(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / 1e6
