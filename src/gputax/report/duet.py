"""The answer of one duet as a console shows it: one table, then noise and evidence; pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gputax.report import wording
from gputax.report.comparison_tables import verdict_cell, with_unit
from gputax.report.grouping import Compared, Pair
from gputax.report.model import Brief, Cell, Column, Fact, Table, text_cell
from gputax.results.documents.comparison import ComparedMetric, Comparison, Resolution, Side
from gputax.text import decimals_beside, digits, duration, percent

COLUMNS = (
    Column("cell", "cell"),
    Column("metric", "metric"),
    Column("values", "base → other", align="right", spare=1),
    Column("overhead", "overhead", align="right"),
    Column("range", "range", align="right"),
    Column("budget", "budget", align="right"),
    Column("verdict", "verdict"),
)
LOADING = "load-storage"
NOTE = "Range: the one-sided bound that decides. Overhead: of the two columns."
# A document of an earlier version has its bounds in the reason alone.
NUMBER = r"(-?[\d.,]+(?:e[+-]?\d+)?|-?inf)"


def duet_brief(comparison: Comparison, pairs: Sequence[Pair]) -> Brief | None:
    """Return the short answer of a duet; None for a comparison of another kind."""
    if comparison.kind != "duet" or len(pairs) != 1:
        return None
    facts = (*why_facts(comparison), _noise(comparison.resolution), _evidence(comparison.sides))
    return Brief(_table(comparison, pairs[0]), facts)


def why_facts(comparison: Comparison) -> tuple[Fact, ...]:
    """Return one line per cause of a difference, with the workloads that share it; the first one's words."""
    workloads: dict[tuple[str, str | None], list[str]] = {}
    words: dict[tuple[str, str | None], str] = {}
    for each in comparison.explanations:
        key = (each.slower, each.code)
        workloads.setdefault(key, []).append(each.workload)
        words.setdefault(key, each.text)
    several = len({row.workload for row in comparison.metrics}) > 1
    facts = []
    for (slower, code), names in workloads.items():
        where = f" ({wording.some(names)})" if several else ""
        head = f"{slower}: " if code == LOADING else f"Why {slower} is slower{where}: "
        facts.append(Fact(f"{head}{words[slower, code]}."))
    return tuple(facts)


def _table(comparison: Comparison, pair: Pair) -> Table:
    cells = list(dict.fromkeys(row.cell for row in pair.rows))
    several = len(cells) > 1
    titles = {"values": f"{pair.base.label} → {pair.other.label}"}
    columns = tuple(
        replace(column, title=titles.get(column.key, column.title), hidden=column.key == "cell" and not several)
        for column in COLUMNS
    )
    what = wording.counted(len(cells), "workload") if several else cells[0]
    parts = [f"{pair.other.label} vs {pair.base.label}", what, "; ".join(pair.devices), _effort(comparison, pair)]
    parts += ["DISTURBED"] * bool(comparison.disturbed)
    # Why a disturbed machine has no verdict is said once, among the warnings.
    rows = tuple(_row(row, doubted=not comparison.disturbed) for row in pair.rows)
    return Table("duet", " · ".join(parts), columns, rows, (NOTE,), grouped=several)


def _row(row: Compared, *, doubted: bool) -> tuple[Cell, ...]:
    metric = row.metric
    verdict = verdict_cell(metric)
    detail = verdict.detail if wording.finite(metric.overhead_percent) is None else wording.pairs_needed(metric)
    return (
        text_cell(row.cell),
        text_cell(_short_title(metric.metric)),
        Cell(_values(metric)),
        Cell(wording.short_overhead(metric)),
        Cell(range_used(metric)),
        Cell(wording.budget(metric)),
        Cell(verdict.text, verdict.value, detail=detail or (_doubt(metric) if doubted else ""), tone=verdict.tone),
    )


def _short_title(name: str) -> str:
    """Return `mean` or `p99` for a latency, and no direction for a bandwidth: the cell says it."""
    title = wording.metric_title(name)
    return "bandwidth" if title.endswith(" bandwidth") else title.removesuffix(" latency")


def _values(metric: ComparedMetric) -> str:
    """Return both values in three digits, e.g. `124 → 132 µs`; a unit that both share once."""
    values = [_in_unit(value, metric.unit) for value in (metric.base_value, metric.other_value)]
    if values == [wording.DASH, wording.DASH]:
        return wording.DASH
    (base, base_unit), (other, other_unit) = (text.rsplit(" ", 1) if " " in text else (text, "") for text in values)
    return f"{base} → {other} {other_unit}" if base_unit == other_unit else " → ".join(values)


def _in_unit(value: float | None, unit: str) -> str:
    return with_unit(value if wording.finite(value) is None else float(f"{value:.3g}"), unit)


def range_used(metric: ComparedMetric) -> str:
    """Return the bound that decided, or both if none did; else the 95 % interval."""
    lower, upper = metric.bounds or _earlier_bounds(metric.reason)
    would_be = metric.verdict if metric.verdict != "inconclusive" else _withheld(metric.reason)
    if would_be == "pass" and upper is not None:
        return f"≤ {_bound(upper, metric.budget)} {metric.budget_unit}"
    if would_be == "fail" and lower is not None:
        return f"≥ {_bound(lower, metric.budget)} {metric.budget_unit}"
    if lower is not None and upper is not None:
        return f"{_bound(lower, metric.budget)} to {_bound(upper, metric.budget)} {metric.budget_unit}"
    interval = wording.metric_overhead(metric).partition(" (95 % CI ")[2].removesuffix(")")
    return f"95 % CI {interval}" if interval else wording.DASH


def _withheld(reason: str) -> str:
    """Return the verdict that the numbers alone would give, "" if they give none."""
    found = re.search(r"otherwise this would be a (pass|fail)", reason)
    return found.group(1) if found else ""


def _earlier_bounds(reason: str) -> tuple[float | None, float | None]:
    found = [re.search(rf"{side} bound {NUMBER} ", reason) for side in ("lower", "upper")]
    lower, upper = (None if each is None else float(each.group(1).replace(",", "")) for each in found)
    return lower, upper


def _bound(value: float, budget: float | None) -> str:
    if wording.finite(value) is None:
        return "unknown"
    if 0.1 <= abs(value) < 100.0:
        shown = f"{value:.{decimals_beside(budget, 1 if abs(value) >= 1.0 else 2, value)}f}"
    else:
        shown = digits(value, 2)
    return shown.replace("-", wording.MINUS)


def _doubt(metric: ComparedMetric) -> str:
    """Return why a verdict that the numbers would give was withheld."""
    withheld = metric.verdict == "inconclusive" and range_used(metric).startswith(("≤", "≥"))
    return metric.reason.rpartition("; ")[0] if withheld else ""


def _effort(comparison: Comparison, pair: Pair) -> str:
    """Return e.g. `86 pairs in 5 s, 3 restarts`, over all workloads."""
    settings = comparison.settings
    measured: list[dict[str, Any]] = list(settings.get("workloads", {}).values()) or [settings]
    # Earlier versions restarted each workload for itself.
    seconds, restarts = (
        float(settings[key] if key in settings else sum(each.get(key) or 0 for each in measured))
        for key in ("seconds", "restarts")
    )
    most: dict[str, int] = {}
    for row in pair.rows:
        most[row.cell] = max(most.get(row.cell, 0), row.metric.pairs or 0)
    pairs = wording.counted(sum(most.values()), "pair")
    return f"{pairs} in {_time(seconds)}, {wording.counted(int(restarts), 'restart')}" if seconds else pairs


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 1.0 else duration(seconds)


def _noise(control: Resolution | None) -> Fact:
    if control is None:
        return Fact("Noise: not measured (no A/A control).")
    basis = f"A against A, {control.pairs:,} pairs in {_time(control.seconds)}"
    if wording.finite(control.half_width_percent) is None:
        return Fact(f"Noise: unknown; the A/A control has no interval ({basis}).", "inconclusive")
    luck = control.process_luck_percent
    differ = "" if luck is None else f"; processes of one program differ by {percent(luck)}"
    text = f"Noise: ±{percent(control.half_width_percent)} ({basis}){differ}"
    if control.contains_zero:
        return Fact(f"{text}.")
    # A warning of the comparison says what to think of it.
    return Fact(f"{text}; {wording.bounds_text(control.ci95_percent, '%', 1)}, without 0.", "fail")


def _evidence(sides: Sequence[Side]) -> Fact:
    lost = any(side.evidence.get("active") is False for side in sides)
    # A bare side has nothing to prove, which is worth saying only where no other side has.
    layered = [side for side in sides if not _is_bare(side)] or sides
    proofs = dict.fromkeys(f"{side.environment}: {_proof(side)}" for side in layered)
    return Fact(f"Evidence: {'; '.join(proofs)}.", "fail" if lost else "")


def _is_bare(side: Side) -> bool:
    return side.environment == "bare" or side.evidence.get("layer") == "none"


def _proof(side: Side) -> str:
    evidence = side.evidence
    if evidence.get("active") is False:
        return "the layer was not active"
    if _is_bare(side):
        return "nothing to prove"
    counted = evidence.get("calls_by_worker")
    if isinstance(counted, int) and counted == evidence.get("calls_by_proxy"):
        return f"{counted:,} calls counted on both sides"
    if evidence.get("program_pids") and isinstance(evidence.get("calls_by_proxy"), int):
        return f"{evidence['calls_by_proxy']:,} calls of the program counted by the proxy"
    return "the layer was active" if evidence.get("active") else "none"
