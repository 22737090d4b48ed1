"""The overhead of B over A from pairs inside worker restarts: one estimand per metric, whatever the slot length.

The mean is the ratio of the totals of all requests, a percentile the ratio of the pooled requests' percentiles: what a
reader gets from the two columns. The interval is the wider of two: by the pairs inside the restarts, and by the
restarts as replicates, because two processes of the same program differ in speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gputax.errors import ResultsError
from gputax.stats.estimates import Unit, percent_of_log, t_quantile
from gputax.stats.inputs import FloatArray, positive_values
from gputax.stats.pairs import hodges_lehmann
from gputax.stats.percentiles import floor_for
from gputax.stats.series import series_mean

NS_PER_MS = 1e6
# A t interval from fewer replicates is uselessly wide, and their spread is luck itself: with fewer there is an interval
# by the pairs alone, and no verdict.
LEAST_RESTARTS = 5
LEAST_PAIRS = 5
LEAST_REQUESTS = 20
# Neighbouring pairs are merged into so many groups where each group must have a percentile of its own.
PAIR_GROUPS = 20
# Leaving out a group says little about a tail, which is a few single requests; a share says little about the luck of
# whole processes. p90 needs both: either alone covered the truth in 90 to 91 % of some worlds.
JACKKNIFE_UP_TO, TAIL_FROM = 0.95, 0.75
# One restart has too few requests for a percentile further out.
MIDDLE_UP_TO = 0.5
IntArray = NDArray[np.int64]


# (distance of the lower bound, distance of the upper bound) from the centre, at a risk for each
Reach = Callable[[float], tuple[float, float]]


@dataclass(frozen=True)
class Level:
    """The standard error that one way to replicate gives, with its degrees of freedom."""

    se: float
    degrees_of_freedom: float
    skew: float = 0.0
    """Skewness of the replicates over six times the root of their number."""

    def reach(self, alpha: float) -> tuple[float, float]:
        """Return the distances of the bounds; a long tail moves the bound on its side further out (Johnson 1978).

        Without that, a layer that delays one request in a hundred passes a budget on its mean in 12 % of runs.
        """
        if self.se <= 0.0:
            return 0.0, 0.0
        t = -t_quantile(alpha, self.degrees_of_freedom)
        tail = self.skew * (1.0 + 2.0 * t * t)
        return self.se * (t + max(0.0, -tail)), self.se * (t + max(0.0, tail))


@dataclass(frozen=True)
class Overhead:
    """A cost with the distances of its bounds."""

    centre: float
    """On the scale on which its error is about symmetric: the log of B/A, or milliseconds."""
    reach: Reach
    unit: Unit = "%"
    shown: Callable[[float], float] = percent_of_log
    """From that scale to the unit."""

    @property
    def value(self) -> float:
        """The cost in its unit."""
        return self.shown(self.centre)

    def one_sided(self, alpha: float) -> tuple[float, float]:
        """Return the lower and the upper bound, each with risk alpha on its own."""
        below, above = self.reach(alpha)
        return self.shown(self.centre - below), self.shown(self.centre + above)

    def half_width(self, alpha: float) -> float:
        """Return the larger distance, on the scale of the centre."""
        return max(self.reach(alpha))


def widest(levels: Sequence[Level]) -> Reach:
    """Return at each risk the distances of the levels that reach furthest."""
    return furthest([level.reach for level in levels])


def furthest(reaches: Sequence[Reach]) -> Reach:
    """Return at each risk the larger distance on each side."""

    def reach(alpha: float) -> tuple[float, float]:
        found = [each(alpha) for each in reaches]
        return max(below for below, _ in found), max(above for _, above in found)

    return reach


@dataclass(frozen=True)
class BlockOverhead:
    """One metric of both sides over all pairs, and B's cost as a log ratio and as a time."""

    a_ns: float
    b_ns: float
    ratio: Overhead
    difference: Overhead
    pairs: int
    restarts: int
    middle: float | None = None
    """The Hodges-Lehmann centre of one log ratio for each restart, as a cross-check; None for a tail."""


@dataclass(frozen=True)
class Requests:
    """All latencies of one side in the order of measurement, and how many each pair has."""

    latency_ns: FloatArray
    counts: IntArray

    @classmethod
    def of(cls, blocks: Sequence[ArrayLike], name: str) -> Requests:
        """Join the blocks of all pairs, or say what is wrong with which request."""
        counts = np.array([np.size(block) for block in blocks], dtype=np.int64)
        if not counts.all():
            raise ResultsError(f"{name}: pair {int(np.argmin(counts)) + 1} of {counts.size} has no request")
        return cls(positive_values(np.concatenate([np.asarray(block) for block in blocks]), name), counts)

    @property
    def sums_ns(self) -> FloatArray:
        """The total of each pair."""
        return np.add.reduceat(self.latency_ns, np.cumsum(self.counts) - self.counts)


@dataclass(frozen=True)
class Blocks:
    """The requests of both sides, and the restart of each pair."""

    a: Requests
    b: Requests
    restart: IntArray

    @classmethod
    def of(cls, a_ns: Sequence[ArrayLike], b_ns: Sequence[ArrayLike], restart: ArrayLike) -> Blocks:
        """Check the pairs, or say what is wrong."""
        if len(a_ns) != len(b_ns) or len(a_ns) != np.size(restart) or not len(a_ns):
            raise ResultsError(f"A has {len(a_ns)} blocks and B {len(b_ns)}, of {np.size(restart)} pairs")
        return cls(Requests.of(a_ns, "A"), Requests.of(b_ns, "B"), np.asarray(restart, dtype=np.int64))

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return self.restart.size

    @property
    def restarts(self) -> int:
        """The number of processes that each side had."""
        return int(np.unique(self.restart).size)


def refusal(blocks: Blocks, p: float) -> str | None:
    """Return why these pairs are not enough for percentile p, or None if they are."""
    if blocks.pairs < LEAST_PAIRS:
        return f"p{100 * p:g} needs at least {LEAST_PAIRS} pairs, there are {blocks.pairs}"
    floor = floor_for(p) if p > 0.5 else LEAST_REQUESTS
    for name, side in (("A", blocks.a), ("B", blocks.b)):
        samples = side.latency_ns.size
        if samples < floor:
            return f"p{100 * p:g} needs at least {floor} requests on each side, {name} has {samples}"
    return None


def mean_overhead(blocks: Blocks, shown: Callable[[float], float] = percent_of_log) -> BlockOverhead:
    """Return the overhead of the mean: the ratio of all requests' total times, per request."""
    if blocks.pairs < 2:
        raise ResultsError("an interval needs at least 2 pairs", next_step="measure longer")
    a_sums, b_sums = blocks.a.sums_ns, blocks.b.sums_ns
    a_counts, b_counts = blocks.a.counts, blocks.b.counts
    a_ns, b_ns = float(a_sums.sum() / a_counts.sum()), float(b_sums.sum() / b_counts.sum())
    labels, group = np.unique(blocks.restart, return_inverse=True)
    totals = [np.bincount(group, weights=each) for each in (a_sums, a_counts, b_sums, b_counts)]

    def without(number: int) -> tuple[float, float]:
        a_sum, a_count, b_sum, b_count = (float(total.sum() - total[number]) for total in totals)
        return a_sum / a_count, b_sum / b_count

    # The influence of each pair on the log ratio and on the difference; their means are 0.
    a_part, b_part = (
        len(sums) * (sums - mean * counts) / counts.sum()
        for sums, counts, mean in ((a_sums, a_counts, a_ns), (b_sums, b_counts, b_ns))
    )
    ratio = [_inside(b_part / b_ns - a_part / a_ns, group)]
    difference = [_inside((b_part - a_part) / NS_PER_MS, group)]
    if labels.size >= LEAST_RESTARTS:
        by_restart = _jackknife(without, np.bincount(group), a_ns, b_ns)
        ratio.append(by_restart[0])
        difference.append(by_restart[1])
    return BlockOverhead(
        a_ns,
        b_ns,
        Overhead(math.log(b_ns / a_ns), widest(ratio), shown=shown),
        Overhead((b_ns - a_ns) / NS_PER_MS, widest(difference), "ms", float),
        blocks.pairs,
        blocks.restarts,
        hodges_lehmann(np.log(totals[2] / totals[3]) - np.log(totals[0] / totals[1])),
    )


def percentile_overhead(blocks: Blocks, p: float) -> BlockOverhead:
    """Return the overhead of percentile p of the pooled requests."""
    reason = refusal(blocks, p)
    if reason:
        raise ResultsError(reason, next_step="measure longer, or use a lower percentile")
    _, group = np.unique(blocks.restart, return_inverse=True)
    # Groups of neighbours in time: the noise of the pairs.
    steps = np.arange(group.size) * min(PAIR_GROUPS, group.size) // group.size
    groups = [steps, group] if blocks.restarts >= LEAST_RESTARTS else [steps]
    a, b = _Pooled.of(blocks.a), _Pooled.of(blocks.b)
    a_ns, b_ns = a.percentile(p), b.percentile(p)
    ratio: list[Reach] = []
    difference: list[Reach] = []
    if p <= JACKKNIFE_UP_TO:
        found = [
            _jackknife(partial(_without, a, b, p, members), np.bincount(members), a_ns, b_ns) for members in groups
        ]
        ratio.append(widest([level for level, _ in found]))
        difference.append(widest([level for _, level in found]))
    if p >= TAIL_FROM:
        shares = widest([_share_level(a, b, p, members) for members in groups])
        ratio.append(partial(_tail_reach, b, p, shares, math.log))
        difference.append(partial(_tail_reach, b, p, shares, _milliseconds))
    return BlockOverhead(
        a_ns,
        b_ns,
        Overhead(math.log(b_ns / a_ns), furthest(ratio)),
        Overhead((b_ns - a_ns) / NS_PER_MS, furthest(difference), "ms", float),
        blocks.pairs,
        blocks.restarts,
        _middle(a, b, p, group) if p <= MIDDLE_UP_TO else None,
    )


@dataclass(frozen=True)
class _Pooled:
    """All requests of one side, sorted, with the pair of each."""

    ordered_ns: FloatArray
    pair: IntArray

    @classmethod
    def of(cls, side: Requests) -> _Pooled:
        order = np.argsort(side.latency_ns, kind="stable")
        return cls(side.latency_ns[order], np.repeat(np.arange(side.counts.size), side.counts)[order])

    def percentile(self, p: float, kept: NDArray[np.bool_] | None = None) -> float:
        """Return LoadGen's percentile, of the kept pairs only."""
        values = self.ordered_ns if kept is None else self.ordered_ns[kept[self.pair]]
        return float(values[int(values.size * p)])

    def bounds(self, p: float, margin: float) -> tuple[float, float]:
        """Return the values at both ends of p plus or minus a margin; unknown beyond the last request."""
        size = self.ordered_ns.size
        low, high = math.floor(size * (p - margin)) - 1, math.ceil(size * (p + margin))
        return (
            float(self.ordered_ns[low]) if low >= 0 else 0.0,
            float(self.ordered_ns[high]) if high < size else math.inf,
        )


def _middle(a: _Pooled, b: _Pooled, p: float, group: IntArray) -> float:
    one_each = [math.log(b.percentile(p, group == each) / a.percentile(p, group == each)) for each in np.unique(group)]
    return hodges_lehmann(np.array(one_each))


def _without(a: _Pooled, b: _Pooled, p: float, members: IntArray, number: int) -> tuple[float, float]:
    kept = members != number
    return a.percentile(p, kept), b.percentile(p, kept)


def _share_level(a: _Pooled, b: _Pooled, p: float, members: IntArray) -> Level:
    """Return how uncertain the shares of requests below each side's percentile are against each other."""
    groups = int(members.max()) + 1
    surplus = np.zeros(groups)
    for side, sign in ((b, 1.0), (a, -1.0)):
        below = side.ordered_ns < side.percentile(p)
        surplus += sign * np.bincount(members[side.pair], weights=below - p, minlength=groups) / below.size
    se = math.sqrt(groups / (groups - 1.0) * float(surplus @ surplus))
    # Few requests lie beyond a tail; their counts may agree by chance, and are never surer than one side's alone.
    return Level(max(se, math.sqrt(p * (1.0 - p) / b.ordered_ns.size)), groups - 1.0)


def _tail_reach(
    b: _Pooled, p: float, shares: Reach, scale: Callable[[float], float], alpha: float
) -> tuple[float, float]:
    """Return the distances of the bounds on a tail: the uncertainty of the share, read off B's own distribution.

    Woodruff (1952), with both sides' counts in the same groups, so that what hits both alike cancels. A tail may be
    lopsided, or jump where stalls begin.
    """
    centre = scale(b.percentile(p))
    low, high = b.bounds(p, max(shares(alpha)))
    return (
        centre - scale(low) if low > 0.0 else math.inf,
        scale(high) - centre if math.isfinite(high) else math.inf,
    )


def _milliseconds(ns: float) -> float:
    return ns / NS_PER_MS


def _inside(influence: FloatArray, group: IntArray) -> Level:
    """Return the level of the pairs: their noise around their restart's own mean.

    Steps from one restart to the next belong to the other level. Taken for correlated noise they would give an
    interval five times too wide (±11 % instead of ±2.2 %).
    """
    sizes = np.bincount(group)
    centred = influence - (np.bincount(group, weights=influence) / sizes)[group]
    mean = series_mean(centred)
    lost = influence.size / max(1, influence.size - sizes.size)
    spread = float(np.sqrt(np.mean(centred**2)))
    skew = float(np.mean(centred**3)) / spread**3 / (6.0 * math.sqrt(influence.size)) if spread > 0.0 else 0.0
    return Level(mean.se * math.sqrt(lost), max(1.0, mean.degrees_of_freedom - sizes.size + 1), skew)


def _jackknife(
    without: Callable[[int], tuple[float, float]], sizes: IntArray, a_ns: float, b_ns: float
) -> tuple[Level, Level]:
    """Return the levels of log ratio and difference by leaving out one group at a time.

    Groups may be unequal (Busing, Meijer and Van der Leeden 1999, delete-m_j).
    """
    shares = sizes.sum() / sizes
    copies = [(math.log(b / a), (b - a) / NS_PER_MS) for a, b in map(without, range(sizes.size))]
    levels = []
    for whole, left in zip((math.log(b_ns / a_ns), (b_ns - a_ns) / NS_PER_MS), np.array(copies).T, strict=True):
        pseudo = shares * whole - (shares - 1.0) * left
        centre = sizes.size * whole - float(np.sum((1.0 - 1.0 / shares) * left))
        variance = float(np.mean((pseudo - centre) ** 2 / (shares - 1.0)))
        levels.append(Level(math.sqrt(variance), sizes.size - 1.0))
    return levels[0], levels[1]
