"""When a duet may stop: based on the width of its interval, never on the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gputax.errors import UsageError
from gputax.stats.inputs import FloatArray
from gputax.stats.sample_size import pairs_for_half_width
from gputax.stats.series import SeriesMean, series_mean

StopReason = Literal["pilot", "too wide", "narrow enough", "max pairs", "max time"]


@dataclass(frozen=True)
class StopRule:
    """The stopping rule, fixed before the run.

    Checking after each pair and stopping at "significant" gives 27 % false alarms instead of 5 %. Stopping at
    the first narrow look, from 10 pilot pairs on, covers the truth in 93.5 to 94.9 % of runs: it favours
    those whose noise happens to look small. Requiring that the interval was narrow five pairs earlier, too,
    gives 94.3 to 94.9 % (40 000 simulated runs).
    """

    half_width_percent: float
    """Half-width of the 95 % interval, on the log scale."""
    max_pairs: int
    max_time_s: float
    pilot_pairs: int = 10
    settle_pairs: int = 5

    def __post_init__(self) -> None:
        if not self.half_width_percent > 0.0:
            raise UsageError(f"a half-width of {self.half_width_percent:g} % can never be reached")
        if self.pilot_pairs < 2 or self.max_pairs < 2 or self.settle_pairs < 0:
            raise UsageError("an interval needs at least 2 pairs", next_step="raise the pilot or the maximum")


@dataclass(frozen=True)
class StopDecision:
    """Whether to stop now, and why."""

    stop: bool
    reason: StopReason
    half_width_percent: float | None
    """Half-width of the widest metric; None before there are two pairs."""
    pairs_expected: int | None
    """Total number of pairs needed for the width at the current noise."""


def decide(log_ratios_by_metric: Sequence[FloatArray], rule: StopRule, elapsed_s: float) -> StopDecision:
    """Decide after a pair, from ln(B/A) of each metric in the order of measurement; the widest one counts."""
    pairs = min((len(logs) for logs in log_ratios_by_metric), default=0)
    settled = pairs - rule.settle_pairs
    width, expected, narrow = None, None, False
    if pairs >= 2:
        widest = _widest(log_ratios_by_metric, pairs)
        width = 100.0 * widest.half_width(0.025)
        expected = pairs_for_half_width(100.0 * widest.se * pairs**0.5, rule.half_width_percent)
        if settled >= rule.pilot_pairs and width <= rule.half_width_percent:
            earlier = _widest(log_ratios_by_metric, settled)
            narrow = 100.0 * earlier.half_width(0.025) <= rule.half_width_percent
    reason = _reason(pairs, narrow, rule, elapsed_s)
    return StopDecision(reason not in ("pilot", "too wide"), reason, width, expected)


def _widest(log_ratios_by_metric: Sequence[FloatArray], pairs: int) -> SeriesMean:
    means = [series_mean(logs[:pairs]) for logs in log_ratios_by_metric]
    return max(means, key=lambda mean: mean.half_width(0.025))


def _reason(pairs: int, narrow: bool, rule: StopRule, elapsed_s: float) -> StopReason:
    if narrow:
        return "narrow enough"
    if pairs >= rule.max_pairs:
        return "max pairs"
    if elapsed_s >= rule.max_time_s:
        return "max time"
    return "pilot" if pairs < rule.pilot_pairs else "too wide"
