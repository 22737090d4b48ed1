"""Compute a cell's figures from the columns of one load; pure, and the same for every environment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gputax.errors import CellError
from gputax.measure.tokens import TokenFigures, token_figures
from gputax.plan.notices import Notice
from gputax.results.columns import Columns, begin_column, latencies_ns, succeeded
from gputax.results.importers.loadgen import LoadGenLog
from gputax.stats.percentiles import percentile_table
from gputax.stats.series import series_mean

# LoadGen's latency includes its bookkeeping, about 3 µs per query here; beyond this the two clocks disagree.
AGREEMENT_SHARE = 0.05
AGREEMENT_NS = 200_000
# Fewer runs than this are too few for a spread.
FEWEST_RUNS = 5


@dataclass(frozen=True)
class Figures:
    """The figures of one load. Latencies are None if there are too few samples."""

    throughput_per_s: float
    duration_s: float
    queries: int
    samples: int
    mean_batch: float
    latency_ns: dict[str, float | None]
    mean_ns: float
    min_ns: float
    max_ns: float
    notices: tuple[Notice, ...]
    throughput_half_width_percent: float | None = None
    """Half of the 95 % interval of the mean time of a run, from this load alone; None for a server."""
    tokens: TokenFigures | None = None
    failed: int = 0
    """Requests that failed: they are in no latency and in no throughput."""

    def ms(self, percentile: str) -> float | None:
        """Return a percentile such as `p90` in milliseconds."""
        value = self.latency_ns[percentile]
        return None if value is None else value / 1e6


def summarise(scenario: str, columns: Columns) -> Figures:
    """Return the figures of one load."""
    if len(columns["end_ns"]) == 0:
        raise CellError("the load ended without a single sample", where=f"scenario {scenario}")
    good = succeeded(columns)
    latency = latencies_ns(scenario, columns)
    if len(latency) == 0:
        raise CellError(
            f"all {len(good)} requests failed", where=f"scenario {scenario}", next_step="see what the server answers"
        )
    if scenario == "server":
        samples, batches = len(latency), float(np.sum(1.0 / columns["batch"][good]))
    else:
        samples, batches = int(columns["samples"][good].sum()), float(len(latency))
    duration_s = float(columns["end_ns"].max() - columns[begin_column(scenario)].min()) / 1e9
    tokens = token_figures(scenario, columns, duration_s)
    table = percentile_table(latency, (0.50, 0.90, 0.95, 0.99))
    names = ("p50", "p90", "p95", "p99")
    notices = tuple(
        Notice(
            "too-few-samples",
            f"{name} needs {row.floor} samples; there are {table.count}, so it is omitted",
            float(table.count),
        )
        for name, row in zip(names, table.rows, strict=True)
        if row.value_ns is None
    )
    return Figures(
        throughput_per_s=samples / duration_s if duration_s > 0 else 0.0,
        duration_s=duration_s,
        queries=len(latency),
        samples=samples,
        mean_batch=samples / batches,
        latency_ns={name: row.value_ns for name, row in zip(names, table.rows, strict=True)},
        mean_ns=table.mean_ns,
        min_ns=table.min_ns,
        max_ns=table.max_ns,
        notices=(*notices, *(tokens.notices if tokens else ())),
        tokens=tokens,
        failed=int(np.count_nonzero(~good)),
        throughput_half_width_percent=None if scenario == "server" else _half_width_percent(latency),
    )


def _half_width_percent(run_ns: npt.NDArray[np.int64]) -> float | None:
    if len(run_ns) < FEWEST_RUNS:
        return None
    mean = series_mean(run_ns.astype(np.float64))
    return 100.0 * mean.half_width(0.025) / mean.mean


def clock_agreement(figures: Figures, log: LoadGenLog) -> list[Notice]:
    """Compare our percentiles with LoadGen's own: two clocks on the same queries must agree."""
    notices = []
    for name, percent in (("p50", "50.00"), ("p90", "90.00"), ("p99", "99.00")):
        ours, theirs = figures.latency_ns[name], log.percentile_ns(percent)
        if ours is None or theirs is None:
            continue
        if abs(theirs - ours) > max(AGREEMENT_NS, AGREEMENT_SHARE * ours):
            text = (
                f"LoadGen's {name} is {theirs / 1e6:.3f} ms, our own clock says {ours / 1e6:.3f} ms: "
                "the wall clock moved or the issuing thread was delayed"
            )
            notices.append(Notice("clocks-disagree", text, theirs / ours - 1.0))
    return notices
