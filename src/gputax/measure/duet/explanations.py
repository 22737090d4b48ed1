"""After the pairs: for each workload in which the sides surely differ, the cause in one line, or that none is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputax.measure.duet.causes import explain, explain_load
from gputax.measure.duet.recorded import SideFacts
from gputax.plan.metrics import METRICS
from gputax.results.documents.comparison import ComparedMetric, Explanation, Resolution

NOTHING = (
    "none of what was recorded explains it (CPU quota, threads, cpuset, weight, steal, run-queue wait, clock, copies, "
    "host calls, storage, NUMA, huge pages)"
)
# What is typical comes before what a few slow requests carry.
# No counter tells the cause of less than this.
LEAST_DIFFERENCE_PERCENT = 0.5
DIFFERENCE_ORDER = ("latency_p50", "throughput", "host_to_device", "device_to_host", "latency_mean")


def explanations(
    labels: tuple[str, str],
    recorded: Mapping[str, tuple[SideFacts, SideFacts]],
    rows: Sequence[ComparedMetric],
    control: Resolution | None,
) -> tuple[Explanation, ...]:
    """Return one for each workload with a difference, and one more if a side is slow to load because of storage."""
    found = []
    for workload, (a, b) in recorded.items():
        percent = time_difference_percent([row for row in rows if row.workload == workload], control)
        if percent is None:
            continue
        cause = explain(a, b, percent)
        slower = labels[1] if percent >= 0.0 else labels[0]
        found.append(
            Explanation(
                workload=workload,
                slower=slower,
                code=cause.code if cause else None,
                text=cause.text if cause else NOTHING,
            )
        )
    for workload, (a, b) in list(recorded.items())[:1]:
        for slower, one, other in ((labels[1], a, b), (labels[0], b, a)):
            load = explain_load(one, other)
            if load is not None:
                found.append(Explanation(workload=workload, slower=slower, code=load.code, text=load.text))
    return tuple(found)


def time_difference_percent(rows: Sequence[ComparedMetric], control: Resolution | None) -> float | None:
    """Return how much longer B takes by the first metric whose interval excludes zero; None if there is none.

    A difference within the noise of two equal sides needs no cause.
    """
    floor = max(LEAST_DIFFERENCE_PERCENT, control.half_width_percent if control is not None else 0.0)
    by_name = {row.metric: row for row in rows}
    for name in DIFFERENCE_ORDER:
        row = by_name.get(name)
        if row is None or row.overhead_percent is None or row.ci95_percent is None:
            continue
        low, high = row.ci95_percent
        surely = (low is not None and low > 0.0) or (high is not None and high < 0.0)
        if not surely or abs(row.overhead_percent) <= floor:
            continue
        if METRICS[name].loss == "time":
            return row.overhead_percent
        return 100.0 * (1.0 / (1.0 - row.overhead_percent / 100.0) - 1.0) if row.overhead_percent < 100.0 else None
    return None
