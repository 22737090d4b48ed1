"""Write overheads, bounds, budgets and verdicts as OpenMetrics text, for a push gateway or a textfile collector."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gputax.report.exporters.judged_rows import JudgedRow, judged_rows
from gputax.report.model import Report

LABELS = ("workload", "scenario", "batch_size", "metric", "base", "other", "device")
VERDICTS = ("pass", "fail", "inconclusive", "not comparable")
SIGN = "# TYPE gputax_overhead_ratio gauge"


@dataclass(frozen=True)
class Gauge:
    """One family of numbers: how to get it from a row, None where the row has none."""

    name: str
    help: str
    value: Callable[[JudgedRow], float | None]


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100.0


def _budget(row: JudgedRow, unit: str) -> float | None:
    return row.number("budget") if row.word("budget_unit") == unit else None


GAUGES = (
    Gauge(
        "gputax_overhead_ratio", "Overhead over the base; positive is worse.", lambda r: _ratio(r.number("overhead"))
    ),
    Gauge("gputax_overhead_lower_ratio", "Lower end of its 95 % interval.", lambda r: _ratio(r.bounds[0])),
    Gauge("gputax_overhead_upper_ratio", "Upper end of its 95 % interval.", lambda r: _ratio(r.bounds[1])),
    Gauge("gputax_budget_ratio", "The overhead that it may have.", lambda r: _ratio(_budget(r, "%"))),
    Gauge(
        "gputax_budget_seconds",
        "The same, for budgets in time.",
        lambda r: None if (ms := _budget(r, "ms")) is None else ms / 1e3,
    ),
)


def openmetrics_text(report: Report) -> str:
    """Return the exposition: gauges with the same labels, and the verdict as a state set."""
    # Several reports of the same sides in one: a sample may be there only once, so the first stands.
    rows = list({_labels(row): row for row in reversed(judged_rows(report))}.values())[::-1]
    lines = [line for gauge in GAUGES for line in _family(gauge, rows)]
    lines += ["# TYPE gputax_verdict stateset", "# HELP gputax_verdict The verdict on the budget; one state is 1."]
    for row in rows:
        for verdict in VERDICTS:
            state = f'{_labels(row)},gputax_verdict="{verdict}"'
            lines.append(f"gputax_verdict{{{state}}} {int(row.word('verdict') == verdict)}")
    return "\n".join([*lines, "# EOF"]) + "\n"


def _family(gauge: Gauge, rows: list[JudgedRow]) -> Iterator[str]:
    yield f"# TYPE {gauge.name} gauge"
    unit = gauge.name.rpartition("_")[2]
    yield f"# UNIT {gauge.name} {unit}"
    yield f"# HELP {gauge.name} {gauge.help}"
    for row in rows:
        value = gauge.value(row)
        if value is not None:
            yield f"{gauge.name}{{{_labels(row)}}} {value!r}"


def _labels(row: JudgedRow) -> str:
    return ",".join(f'{name}="{_escaped(row.word(name))}"' for name in LABELS)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
