"""How numbers, intervals, budgets and verdicts are put into words: the same in every exporter."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence

from gputax.plan.metrics import METRICS
from gputax.results.documents.comparison import ComparedMetric, Verdict
from gputax.results.importers.source import UNKNOWN, UNNAMED
from gputax.stats.percentiles import floor_for

DASH = "–"
MINUS = "−"
Bounds = tuple[float | None, float | None] | None

# Names and commands fit; a file that was put where a name belongs does not swamp the page.
LONGEST_TEXT = 600
# Controls end terminals and XML; the bidirectional overrides let a name rewrite the line it stands in.
UNPRINTABLE = {"Cc", "Cs", "Co", "Cn", "Zl", "Zp"}
BIDIRECTIONAL = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")

NOT_JUDGED = "not judged"
OVERHEAD_NOTE = "Overhead: positive is worse, whichever way the metric counts."
# On a busy machine single slots are so slow that the two columns may even lie the other way round.
PAIRED_NOTE = "In pairs, the overhead of a mean or a median comes from each pair's own ratio, not from the two columns."
MARKS: dict[Verdict, str] = {"pass": "✓", "fail": "✗", "inconclusive": "?", "not comparable": "≠"}


def plain(text: str) -> str:
    """Return the text on one line, without what a terminal, a browser or an XML parser would obey."""
    shown = "".join(_printable(character) for character in text[: LONGEST_TEXT + 1])
    shown = re.sub(r" {2,}", " ", shown).strip()
    return shown if len(text) <= LONGEST_TEXT else shown[:LONGEST_TEXT] + "…"


def _printable(character: str) -> str:
    if character in "\t\n\r":
        return " "
    if character in BIDIRECTIONAL or unicodedata.category(character) in UNPRINTABLE:
        return "\ufffd"
    return character


def finite(value: float | None) -> float | None:
    """Return the number, or None for what is not one."""
    return value if value is not None and math.isfinite(value) else None


def number(value: float | None) -> str:
    """Return a measured value in four digits, a dash where there is none."""
    value = finite(value)
    if value is None:
        return DASH
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return text.replace("-", MINUS)


def signed(value: float | None, decimals: int) -> str:
    """Return a cost with its sign, e.g. +3.2; a bound that does not exist is infinite."""
    if value is None or math.isnan(value):
        return "∞"
    if math.isinf(value):
        return "+∞" if value > 0 else f"{MINUS}∞"
    # Rounded first, so that -0.04 is not shown as -0.0.
    rounded = round(value, decimals) + 0.0
    return f"{rounded:+,.{decimals}f}".replace("-", MINUS)


def overhead(value: float | None, bounds: Bounds, unit: str) -> str:
    """Return e.g. `+3.2 % (95 % CI +2.6 to +3.9)`, or why there is no number."""
    value = finite(value)
    if value is None:
        return DASH
    low, high = known_bounds(bounds, unit)
    decimals = _decimals(value, low, high)
    return f"{signed(value, decimals)} {unit} ({bounds_text(bounds, unit, decimals)})"


def bounds_text(bounds: Bounds, unit: str, decimals: int = 2) -> str:
    """Return e.g. `95 % CI +2.6 to +3.9`; a bound that is not known is infinite."""
    low, high = known_bounds(bounds, unit)
    if low is None and high is None:
        return "no interval"
    below = f"{MINUS}∞" if low is None else signed(low, decimals)
    above = "+∞" if high is None else signed(high, decimals)
    return f"95 % CI {below} to {above}"


def between(bounds: Bounds) -> str:
    """Return e.g. `205.1 to 215.2` for the bounds of a value that has no sign; nothing where there are none."""
    low, high = (None, None) if bounds is None else (finite(bounds[0]), finite(bounds[1]))
    if low is None and high is None:
        return ""
    return f"{f'{MINUS}∞' if low is None else number(low)} to {'∞' if high is None else number(high)}"


def measured(value: float | None, bounds: Bounds, unit: str) -> str:
    """Return e.g. `210.3 ms (95 % CI 205.1 to 215.2)`."""
    text = number(value)
    if text == DASH:
        return text
    unit = f" {unit}" if unit else ""
    return f"{text}{unit} (95 % CI {between(bounds)})" if between(bounds) else f"{text}{unit} (no interval)"


def known_bounds(bounds: Bounds, unit: str) -> tuple[float | None, float | None]:
    """Return the bounds that say something: infinity, and a ratio of zero (-100 %), do not."""
    low, high = (None, None) if bounds is None else (finite(bounds[0]), finite(bounds[1]))
    if unit == "%" and low is not None and low <= -100.0:
        low = None
    return low, high


def _decimals(value: float, low: float | None, high: float | None) -> int:
    """Return two digits where all is small (a budget of 1 % needs them), one beyond, none where it is huge."""
    largest = max(abs(each) for each in (value, low, high) if each is not None)
    return 2 if largest < 2.0 else 0 if abs(value) >= 100.0 else 1


def metric_overhead(metric: ComparedMetric) -> str:
    """Return the overhead with its interval, in the unit of its budget."""
    if metric.budget_unit == "ms" and finite(metric.overhead_absolute) is not None:
        return overhead(metric.overhead_absolute, metric.ci95_absolute, "ms")
    return overhead(metric.overhead_percent, metric.ci95_percent, "%")


def overhead_beside(metric: ComparedMetric) -> str:
    """Return the percentage where the overhead is told in milliseconds, else nothing."""
    if metric.budget_unit != "ms" or finite(metric.overhead_absolute) is None:
        return ""
    percent = finite(metric.overhead_percent)
    return "" if percent is None else f"{signed(percent, _decimals(percent, None, None))} %"


def short_overhead(metric: ComparedMetric) -> str:
    """Return the overhead without its interval, in the unit of its budget."""
    return metric_overhead(metric).split(" (")[0]


def budget(metric: ComparedMetric) -> str:
    """Return e.g. `5 %` or `+2 ms`."""
    if finite(metric.budget) is None or metric.budget_unit is None:
        return DASH
    return f"+{metric.budget:g} ms" if metric.budget_unit == "ms" else f"{metric.budget:g} %"


def pairs(metric: ComparedMetric) -> str:
    """Return how many pairs it rests on; a comparison without pairs is labelled weaker."""
    if not metric.paired:
        return "unpaired (weaker)"
    return DASH if metric.pairs is None else f"{metric.pairs:,}"


def pairs_needed(metric: ComparedMetric) -> str:
    """Return how many pairs would decide it, where that is known and not yet reached."""
    return "" if metric.pairs_needed is None else f"about {metric.pairs_needed:,} pairs needed"


def moment(stamp: str) -> str:
    """Return a stored time for people, to the minute; what is no time stays as it is."""
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
    return metric.verdict if metric.decides or metric.verdict != "inconclusive" else NOT_JUDGED


def marked(verdict: Verdict) -> str:
    """Return the verdict with its mark, so that colour is never the only sign."""
    return f"{MARKS[verdict]} {verdict}"


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


def joined(names: Sequence[str]) -> str:
    """Return `a`, `a and b` or `a, b and c`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def some(names: Sequence[str], most: int = 4) -> str:
    """Return the first names, and how many more there are."""
    return joined(names if len(names) <= most + 1 else [*names[:most], f"{len(names) - most} more"])


def counted(count: int, noun: str) -> str:
    """Return `1 cell` or `3 cells`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def floors_note() -> str:
    """Return the note that explains a dash in a percentile's place."""
    floors = ", ".join(f"p{100 * p:g} {floor_for(p)}" for p in (0.5, 0.9, 0.95, 0.99))
    return f"{DASH}: too few samples for that percentile, so it is refused ({floors} are needed)."
