"""Tenants of one device: the window in which all ran, the figures of each in it, and figures over the repeats."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gputax.errors import ResultsError
from gputax.stats.inputs import finite_values
from gputax.stats.percentiles import percentile_table
from gputax.stats.series import series_mean
from gputax.text import digits

Int64Array = NDArray[np.int64]
PERCENTILES = (0.50, 0.90, 0.99)
TOKEN_RATE = "tokens_per_sec"
# Processes of one program differ, often as two kinds (a memory layout that suits, or one that does not). Three repeats
# meet only one kind in a quarter of all experiments and then show no spread; six in 3 %. So the interval of fewer has
# at least this half-width, in log units: luck of 1 %, and a quarter more for the noise of a window. Simulated with
# kinds 1 % from their mean and three repeats: the interval held the truth in 74 % without this.
PROCESS_LUCK = 0.0125
REPEATS_THAT_SHOW_LUCK = 6


@dataclass(frozen=True)
class TenantRuns:
    """The runs of one tenant in one load, on the clock that all tenants share."""

    start_ns: Int64Array
    end_ns: Int64Array
    samples: Int64Array
    tokens: Int64Array | None = None
    """Of all samples of each run; None without tokens."""
    series: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    """What tokens add, one value in ns for each run, by name."""


@dataclass(frozen=True)
class Window:
    """The time in which all tenants ran, without the warm-up."""

    begin_ns: int
    end_ns: int
    overlap_share: float
    """The time in which all ran, warm-up included, divided by the time from the release to the last tenant's end."""

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end_ns - self.begin_ns) / 1e9

    def holds(self, runs: TenantRuns) -> NDArray[np.bool_]:
        """Return which runs are completely inside."""
        return np.asarray((runs.start_ns >= self.begin_ns) & (runs.end_ns <= self.end_ns), dtype=np.bool_)


@dataclass(frozen=True)
class Served:
    """The figures of one tenant, or of all together, in the window; percentiles are None below their sample floor."""

    runs: int
    throughput_per_s: float
    mean_ms: float
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    tokens: Mapping[str, float | None] = field(default_factory=dict)
    """`tokens_per_sec`, and percentiles such as `ttft_p90_ms`; empty without tokens."""


@dataclass(frozen=True)
class Replicated:
    """A figure over repeats; no interval with fewer than two, no value if a repeat has none."""

    value: float | None
    ci95: tuple[float, float] | None = None


def common_window(tenants: Sequence[TenantRuns], release_ns: int, warmup_s: float) -> Window:
    """Return the window from the last tenant's start plus the warm-up to the first tenant's end."""
    for number, runs in enumerate(tenants, start=1):
        if runs.end_ns.size == 0:
            raise ResultsError(f"tenant {number} ended without any run")
    first_ns = max(int(runs.start_ns[0]) for runs in tenants)
    last_ns = min(int(runs.end_ns[-1]) for runs in tenants)
    begin_ns = first_ns + int(warmup_s * 1e9)
    if begin_ns >= last_ns:
        together_s = max(0, last_ns - first_ns) / 1e9
        raise ResultsError(
            f"all tenants ran together for {digits(together_s, 3)} s, of which {warmup_s:g} s are warm-up"
        )
    whole_ns = max(int(runs.end_ns[-1]) for runs in tenants) - min(release_ns, first_ns)
    return Window(begin_ns, last_ns, (last_ns - first_ns) / whole_ns)


def served(runs: TenantRuns, window: Window) -> Served:
    """Return the figures of one tenant in the window, with one run after the other.

    Its rate is over the time from its first to its last run inside: over the whole window it would miss the cut runs at
    both ends, which is a tenth for ten runs, and fairness would depend on where each tenant happens to be cut.
    """
    inside = window.holds(runs)
    if not inside.any():
        slowest_s = float((runs.end_ns - runs.start_ns).max()) / 1e9
        raise ResultsError(
            f"no run of a tenant is inside the common window of {digits(window.seconds, 3)} s: "
            f"a run takes {digits(slowest_s, 3)} s"
        )
    start_ns, end_ns = runs.start_ns[inside], runs.end_ns[inside]
    if (start_ns[1:] < end_ns[:-1]).any():
        return _figures(end_ns - start_ns, _overlapping_rate(runs.samples[inside], end_ns))
    span_s = max(1.0, float(end_ns[-1] - start_ns[0])) / 1e9
    return dataclasses.replace(
        _figures(end_ns - start_ns, float(runs.samples[inside].sum()) / span_s),
        tokens=_token_figures(
            None if runs.tokens is None else float(runs.tokens[inside].sum()) / span_s,
            {name: values[inside] for name, values in runs.series.items()},
        ),
    )


def _overlapping_rate(samples: Int64Array, end_ns: Int64Array) -> float:
    """Return the rate of runs that overlap: what was completed from the first end to the last.

    A run's start says when it was handed over, which may be several runs before the device began with it.
    """
    return float(samples[1:].sum()) * 1e9 / max(1.0, float(end_ns[-1] - end_ns[0]))


def served_together(tenants: Sequence[TenantRuns], window: Window) -> Served:
    """Return the figures over all tenants' runs in the window, each run counted once, like the users' query."""
    latency_ns = np.concatenate([(runs.end_ns - runs.start_ns)[window.holds(runs)] for runs in tenants])
    each = [served(runs, window) for runs in tenants]
    rates = [one.tokens.get(TOKEN_RATE) for one in each]
    names = tenants[0].series if all(runs.series for runs in tenants) else ()
    series = {name: np.concatenate([runs.series[name][window.holds(runs)] for runs in tenants]) for name in names}
    return dataclasses.replace(
        _figures(latency_ns, sum(one.throughput_per_s for one in each)),
        tokens=_token_figures(None if None in rates else sum(rate or 0.0 for rate in rates), series),
    )


def _token_figures(per_s: float | None, series: Mapping[str, NDArray[np.float64]]) -> dict[str, float | None]:
    if per_s is None:
        return {}
    found: dict[str, float | None] = {TOKEN_RATE: per_s}
    for name, values in series.items():
        for row in percentile_table(values, PERCENTILES).rows:
            found[f"{name}_p{100 * row.p:g}_ms"] = None if row.value_ns is None else row.value_ns / 1e6
    return found


def _figures(latency_ns: Int64Array, throughput_per_s: float) -> Served:
    table = percentile_table(latency_ns, PERCENTILES)
    p50, p90, p99 = (None if row.value_ns is None else row.value_ns / 1e6 for row in table.rows)
    return Served(table.count, throughput_per_s, table.mean_ns / 1e6, p50, p90, p99)


def replicated(
    values: Sequence[float | None], *, least: float = 0.0, most: float = math.inf, luck: float = PROCESS_LUCK
) -> Replicated:
    """Return the geometric mean over repeats with its 95 % t interval on the log scale, clipped to `least` and `most`.

    A repeat is the unit: runs of one repeat share their processes and are not independent. The truth that the interval
    holds is the value of an undisturbed repeat: of what hits one repeat in ten, most experiments of this size see
    nothing. `luck` is the least half-width of a few repeats.
    """
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return Replicated(None)
    logs = np.log(np.asarray(known, dtype=np.float64))
    value = min(most, max(least, math.exp(float(logs.mean()))))
    if logs.size < 2:
        return Replicated(value)
    mean = series_mean(logs)
    half = max(mean.half_width(0.025), luck if logs.size < REPEATS_THAT_SHOW_LUCK else 0.0)
    return Replicated(value, (max(least, _exp(mean.mean - half)), min(most, _exp(mean.mean + half))))


def slowdown(alone: Mapping[int, float], shared: Mapping[int, float]) -> Replicated:
    """Return the ratio of shared to alone, paired by repeat; both map a repeat to its mean and have processes' luck."""
    common = sorted(alone.keys() & shared.keys())
    return replicated([shared[repeat] / alone[repeat] for repeat in common], luck=math.sqrt(2.0) * PROCESS_LUCK)


def _exp(log: float) -> float:
    # Two repeats far apart have bounds beyond the range of a float; a document cannot store infinity.
    return math.exp(min(log, 700.0))


def jain_index(shares: ArrayLike) -> float:
    """Return (Σx)² / (n Σx²) of what each tenant got: 1 if all got the same, 1/n if one got all (Jain 1984)."""
    values = finite_values(shares, "what the tenants got", item="tenant")
    total, squares = float(values.sum()), float(values @ values)
    # No tenant got anything: equal shares, so 1.
    return total * total / (values.size * squares) if squares > 0.0 else 1.0
