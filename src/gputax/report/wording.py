"""How numbers, intervals, budgets and verdicts are put into words: the same in every exporter."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gputax.plan.metrics import METRICS
from gputax.results.documents.comparison import ComparedMetric, Spread, Verdict
from gputax.results.importers.source import UNKNOWN, UNNAMED
from gputax.stats.percentiles import floor_for
from gputax.text import (
    DASH,
    MINUS,
    Bounds,
    between,
    bounds_text,
    counted,
    decimals_for,
    duration,
    finite,
    joined,
    known_bounds,
    measured,
    number,
    overhead,
    plain,
    signed,
    some,
)

# Most of a report's words are those of every other text; they are reached through this module.
__all__ = [
    "DASH", "MINUS", "Bounds", "between", "bounds_text", "counted", "finite", "joined", "known_bounds", "measured",
    "number", "overhead", "plain", "signed", "some",
]  # fmt: skip

NOT_JUDGED = "not judged"
OVERHEAD_NOTE = "Overhead: positive is worse, for every metric."
LOST_NOTE = "Of a throughput it is the part lost, 1 - new/old."
WITHIN: Spread = "within one run"
WITHIN_NOTE = "One run each: the interval is within a run; how much runs differ is not known, so nothing is decided."
REPEATS_NOTE = "The interval covers how much repeats differ, and a steady trend of the machine across them."
# On a busy machine single slots are so slow that the two columns may even lie the other way round.
PAIRED_NOTE = (
    "In pairs, the overhead of a mean or a median is computed from each pair's ratio, not from the two columns."
)
# Documents store `inconclusive`, as the first version did; people read "undecided".
WORDS: dict[Verdict, str] = {
    "pass": "pass",
    "fail": "fail",
    "inconclusive": "undecided",
    "not comparable": "not comparable",
}
MARKS: dict[Verdict, str] = {"pass": "✓", "fail": "✗", "inconclusive": "?", "not comparable": "≠"}


def metric_overhead(metric: ComparedMetric) -> str:
    """Return the overhead with its interval, in the unit of its budget; one that no repeats support is labelled."""
    if metric.budget_unit == "ms" and finite(metric.overhead_absolute) is not None:
        text = overhead(metric.overhead_absolute, metric.ci95_absolute, "ms", metric.budget)
    else:
        in_percent = metric.budget if metric.budget_unit == "%" else None
        text = overhead(metric.overhead_percent, metric.ci95_percent, "%", in_percent)
    return text.replace("(95 % CI ", "(in one run ") if metric.spread == WITHIN else text


def overhead_beside(metric: ComparedMetric) -> str:
    """Return the percentage where the overhead is shown in milliseconds, else nothing."""
    if metric.budget_unit != "ms" or finite(metric.overhead_absolute) is None:
        return ""
    percent = finite(metric.overhead_percent)
    return "" if percent is None else f"{signed(percent, decimals_for(percent))} %"


def short_overhead(metric: ComparedMetric) -> str:
    """Return the overhead without its interval, in the unit of its budget."""
    return metric_overhead(metric).split(" (")[0]


def budget(metric: ComparedMetric) -> str:
    """Return e.g. `5 %` or `+2 ms`."""
    if finite(metric.budget) is None or metric.budget_unit is None:
        return DASH
    return f"+{metric.budget:g} ms" if metric.budget_unit == "ms" else f"{metric.budget:g} %"


def pairs(metric: ComparedMetric) -> str:
    """Return how many pairs or repeats it rests on; a comparison without either is labelled weaker."""
    if not metric.paired:
        return repeats(metric) or "unpaired (weaker)"
    return DASH if metric.pairs is None else f"{metric.pairs:,}"


def repeats(metric: ComparedMetric) -> str:
    """Return how often each side was measured; empty if the document does not say it."""
    if metric.repeats is None:
        return ""
    a, b = metric.repeats
    if metric.spread_source:
        return f"spread from {metric.spread_source}"
    if a == b:
        return "one run each" if a == 1 else f"{a} repeats each"
    return f"{a} and {b} repeats"


def pairs_needed(metric: ComparedMetric) -> str:
    """Return what would decide it, where that is known and not yet reached: a time, of an earlier version the pairs."""
    if metric.seconds_needed is not None:
        return f"a duet of about {duration(metric.seconds_needed)} would decide"
    return "" if metric.pairs_needed is None else f"about {metric.pairs_needed:,} pairs needed"


def moment(stamp: str) -> str:
    """Return a stored time for people, to the minute; anything else stays as it is."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\d(?:\.\d+)?(Z|[+-]\d\d:\d\d)?", stamp)
    if not found:
        return stamp
    return f"{found[1]} {found[2]} {'UTC' if found[3] in ('Z', '+00:00') else found[3] or ''}".strip()


def evident(metric: ComparedMetric) -> bool:
    """Whether the interval beside the budget says the verdict by itself, so that no reason is needed."""
    in_ms = metric.budget_unit == "ms"
    low, high = known_bounds(metric.ci95_absolute if in_ms else metric.ci95_percent, "ms" if in_ms else "%")
    if metric.budget is None or low is None or high is None:
        return False
    match metric.verdict:
        case "pass":
            return high < metric.budget
        case "fail":
            return low > metric.budget
        case "inconclusive":
            return low <= metric.budget <= high
    return False


def said(metric: ComparedMetric) -> str:
    """Return the verdict in words; what the exit code passes over must not look as if it had decided it."""
    refused = metric.verdict == "inconclusive" and finite(metric.overhead_percent) is None
    return NOT_JUDGED if refused and not metric.decides else WORDS[metric.verdict]


def marked(verdict: Verdict) -> str:
    """Return the verdict with its mark, so that colour is never the only sign."""
    return f"{MARKS[verdict]} {WORDS[verdict]}"


def metric_title(name: str) -> str:
    """Return a metric's name for people; one that we do not know keeps its own."""
    return METRICS[name].title if name in METRICS else name


def cell_title(workload: str, scenario: str, batch_size: int | None, tenants: int = 1) -> str:
    """Return a cell's name without its environment, e.g. `resnet50 offline b8`."""
    scenario = scenario.replace("_", "-")
    parts = [name for name in (workload, scenario) if name != UNKNOWN] or [UNNAMED]
    if batch_size is not None and scenario not in ("single-stream", "multi-stream"):
        parts.append(f"b{batch_size}")
    return " ".join(parts) + (f" ×{tenants}" if tenants != 1 else "")


def on_device(text: str, devices: Sequence[str]) -> str:
    """Return a title with the label of its device."""
    return f"{text} on {'; '.join(dict.fromkeys(devices))}" if devices else f"{text} on an unknown device"


def short_floors_note() -> str:
    """Return the same for a console."""
    return f"{DASH}: too few samples ({', '.join(f'p{100 * p:g} needs {floor_for(p)}' for p in (0.5, 0.9, 0.99))})."


def floors_note() -> str:
    """Return the note that explains a dash in a percentile's place."""
    floors = ", ".join(f"p{100 * p:g} {floor_for(p)}" for p in (0.5, 0.9, 0.95, 0.99))
    return f"{DASH}: too few samples for that percentile, so it is not reported ({floors} are needed)."
