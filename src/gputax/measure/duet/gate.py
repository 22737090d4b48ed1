"""A gate: a duet in CI, refused at once if its budget lies below what the runner can tell from noise; pure."""

from __future__ import annotations

import math

from gputax.errors import PreflightError
from gputax.measure.duet.sides import DuetRequest
from gputax.plan.metrics import duet_metrics
from gputax.results.documents.comparison import Resolution
from gputax.text import digits, duration

# A fifth of the time is enough to know the noise; with less there are too few restarts for an interval.
SHARE_OF_DUET, LEAST_S = 0.2, 8.0
# A half-width of a quarter of the budget decides it; `gputax doctor --resolution` says the same.
DECIDING_SHARE = 0.25


def gate_s(max_time_s: float) -> float:
    """Return how long the noise is measured before the duet."""
    return max(LEAST_S, SHARE_OF_DUET * max_time_s)


def gated_percent(request: DuetRequest) -> float | None:
    """Return the tightest budget in percent that decides the duet; None if all of them are in milliseconds."""
    names = {duet_metrics(request.scenario)[0], *request.named}
    budgets = [request.budgets[name] for name in names if name in request.budgets]
    return min((budget.value for budget in budgets if budget.unit == "%"), default=None)


def refuse_below_noise(found: Resolution, budget_percent: float, max_time_s: float) -> None:
    """Raise if the noise that the duet will still have after its time is not below the budget.

    Noise shrinks with the square root of the time. An A/A without an interval refuses nothing: the duet has a control
    of its own, which withholds a verdict.
    """
    half_width = found.half_width_percent
    if not math.isfinite(half_width) or half_width <= 0.0 or found.seconds <= 0.0:
        return
    expected = half_width * math.sqrt(min(1.0, found.seconds / max_time_s))
    if expected < budget_percent:
        return
    needed_s = found.seconds * (half_width / (DECIDING_SHARE * budget_percent)) ** 2
    raise PreflightError(
        f"the budget of {budget_percent:g} % lies below this runner's noise: ±{digits(expected, 2)} % after "
        f"{duration(max_time_s)} (A against A: ±{digits(half_width, 2)} % in {duration(found.seconds)})",
        where="--gate",
        next_step=f"about {duration(needed_s)} would decide it (--max-time {math.ceil(needed_s)}); or a larger "
        "--budget, or a quieter runner",
    )
