"""The one screen of `gputax demo`: what was measured, as tables of the common model; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gputax import __version__
from gputax.plan.cells import scenario_named
from gputax.plan.metrics import METRICS
from gputax.plan.techniques import TECHNIQUES
from gputax.plan.workloads import OPERATIONS, workload_facts
from gputax.report.model import Cell, Column, Table, text_cell
from gputax.report.wording import WORDS
from gputax.results.documents.comparison import ComparedMetric, Comparison, Resolution
from gputax.results.documents.run import Benchmark, RunRecord
from gputax.results.documents.sharing import SharedRow, SharingRecord
from gputax.text import DASH, counted, decimals_for, digits, duration, milliseconds, number, percent, signed

TYPICAL = {
    "micro:operation": "typical operation",
    "micro:launch": "kernel launch",
    "micro:allocate": "allocate 1 MiB",
    "micro:copy-in-100MB": "copy 100 MB in",
    "micro:copy-out-100MB": "copy 100 MB out",
}
# Of an interval this wide no decimal says anything, and a row must stay one line.
WIDE_PERCENT, MOST_PERCENT = 100.0, 1000.0
MEDIAN, MEAN = "latency_p50", "latency_mean"
# What a reader must not miss is in capitals, as DISTURBED and INVALID are.
LOUD = ("pass", "fail")


@dataclass(frozen=True)
class DemoResults:
    """What the demo found; a part that was skipped is None or missing."""

    cores: int
    machine_warnings: tuple[str, ...]
    run: RunRecord
    resolution: Resolution | None
    proxy: Comparison | None
    sharing: tuple[SharingRecord, ...]
    model: Comparison | None = None
    """A model behind the GPU proxy."""
    model_note: str = ""
    """Why there is none."""
    runtime: Comparison | None = None
    """A container under gVisor, where that is installed; the report shows it, the screen does not."""


def headline(found: DemoResults) -> str:
    """Return the first line: version, and whose numbers these are."""
    if found.run.device == "cpu":
        what = "CPU and a simulated GPU: these are not a GPU's numbers"
    else:
        what = found.run.device_label
    return f"gputax {__version__} · {what}"


def machine_lines(found: DemoResults) -> list[str]:
    """Return what the machine is, and what disturbs it."""
    parts = [counted(found.cores, "core")]
    if found.resolution is not None:
        parts.append(f"noise floor ±{percent(found.resolution.half_width_percent)}")
    warnings = [f"warning: {'; '.join(found.machine_warnings)}"] if found.machine_warnings else []
    return [f"machine: {' · '.join(parts)}", *warnings]


def demo_tables(found: DemoResults) -> tuple[Table, ...]:
    """Return the tables of the screen."""
    tables = []
    if found.proxy is not None:
        notes = (found.model_note,) if found.model_note else ()
        tables.append(proxy_table(*filter(None, (found.model, found.proxy)), notes=notes))
    tables.append(run_table(found.run))
    if found.sharing:
        tables.append(sharing_table(found.sharing))
    return tuple(tables)


def run_table(record: RunRecord) -> Table:
    """Return inference by scenario; offline's batches share a row."""
    columns = (
        Column("scenario", f"{_model(record)}, {record.environment}"),
        Column("throughput", "per s", align="right"),
        Column("p50", "p50", align="right"),
        Column("p90", "p90", align="right"),
    )
    offline = [each for each in record.cells if each.scenario.lower() == "offline"]
    rows: list[tuple[Cell, ...]] = []
    if offline:
        batches = " / ".join(str(each.batch_size) for each in offline)
        rates = " / ".join(digits(each.throughput_samples_per_sec, 3) for each in offline)
        label = next(filter(None, map(_label, offline)), "")
        rows.append((text_cell(f"offline, batch {batches}{label}"), text_cell(rates), text_cell(""), text_cell("")))
    for each in record.cells:
        if each not in offline:
            rows.append(
                (
                    text_cell(_scenario(each.scenario) + _label(each)),
                    Cell(number(each.throughput_samples_per_sec), each.throughput_samples_per_sec),
                    Cell(milliseconds(each.latency_p50_ms), each.latency_p50_ms),
                    Cell(milliseconds(each.latency_p90_ms), each.latency_p90_ms),
                )
            )
    rows += [
        (text_cell(f"{each.cell}: FAILED", tone="fail"), text_cell(each.what), text_cell(""), text_cell(""))
        for each in record.failures
    ]
    return Table("demo_run", "", columns, tuple(rows))


def _label(benchmark: Benchmark) -> str:
    return " (INVALID)" if not benchmark.valid else " (DISTURBED)" if benchmark.disturbed else ""


def proxy_table(*comparisons: Comparison, notes: tuple[str, ...] = ()) -> Table:
    """Return one row for each model or operation: both values, the overhead with its interval, budget and verdict."""
    base, other = comparisons[0].sides[0].label, comparisons[0].sides[-1].label
    columns = (
        Column("operation", "GPU proxy, p50"),
        Column("base", base, align="right"),
        Column("other", other, align="right", short="proxy"),
        Column("overhead", "overhead, 95 %", align="right", short="overhead"),
        Column("budget", "budget", align="right", spare=1),
        Column("verdict", "verdict"),
    )
    rows = []
    shown = [(comparison, metric) for comparison in comparisons for metric in _shown_metrics(comparison)]
    for comparison, metric in shown:
        rows.append(
            (
                text_cell(_operation(metric.workload) + (", mean" if metric.metric == MEAN else "")),
                text_cell(_value(metric.base_value, metric.unit)),
                text_cell(_value(metric.other_value, metric.unit)),
                Cell(_overhead(metric), metric.overhead_percent),
                text_cell(DASH if metric.budget is None else f"{metric.budget:g} {metric.budget_unit}"),
                _verdict(comparison, metric),
            )
        )
    return Table("demo_proxy", "", columns, tuple(rows), notes=(*notes, *_more_time(shown)))


def sharing_table(records: Sequence[SharingRecord]) -> Table:
    """Return the mean latency of one tenant and of the most, technique by technique."""
    most = max(row.tenants for record in records for row in record.rows)
    columns = (
        Column("technique", "Sharing, mean latency"),
        Column("one", "1 tenant", align="right"),
        Column("most", f"{most} tenants", align="right"),
        Column("slowdown", "slowdown, 95 %", align="right", short="slowdown"),
    )
    rows = []
    for record in records:
        for name in dict.fromkeys(row.technique for row in record.rows):
            alone, full = (_row(record, name, count) for count in (1, most))
            title = f"{name} (simulation)" if TECHNIQUES[name].stand_in else f"{name} ({record.device} device)"
            title += " (DISTURBED)" if any(row.disturbed for row in (alone, full) if row) else ""
            rows.append(
                (
                    text_cell(title),
                    text_cell(milliseconds(alone.mean_ms.value) if alone else DASH),
                    text_cell(milliseconds(full.mean_ms.value) if full else DASH),
                    text_cell(_slowdown(full) if full else DASH),
                )
            )
    return Table("demo_sharing", "", columns, tuple(rows))


def _model(record: RunRecord) -> str:
    names = dict.fromkeys(each.workload for each in record.benchmarks)
    return ", ".join(workload_facts(name).title.partition(",")[0] for name in names) or "inference"


def _scenario(name: str) -> str:
    return scenario_named(name)


def _shown_metrics(comparison: Comparison) -> list[ComparedMetric]:
    """Return one metric for each operation, the one that the page opens with: its bandwidth, else its median.

    Where too few pairs refuse the median, the mean is shown.
    """
    shown: dict[str, ComparedMetric] = {}
    for workload in dict.fromkeys(metric.workload for metric in comparison.metrics):
        rows = {metric.metric: metric for metric in comparison.metrics if metric.workload == workload}
        operation = OPERATIONS.get(workload)
        wanted = ((operation.bandwidth_metric if operation else None) or MEDIAN, MEDIAN, MEAN)
        valued = [rows[name] for name in wanted if name in rows and rows[name].base_value is not None]
        shown[workload] = next(iter((*valued, *(rows[name] for name in wanted if name in rows), *rows.values())))
    return list(shown.values())


def _verdict(comparison: Comparison, shown: ComparedMetric) -> Cell:
    """Return one short word, so that a row stays one line; a failure of another metric of the operation is named."""
    failing = [
        METRICS[each.metric].title.removesuffix(" latency")
        for each in comparison.metrics
        if each.workload == shown.workload and each.verdict == "fail" and each.metric in METRICS
    ]
    if failing and shown.verdict != "fail":
        return text_cell(f"FAIL ({failing[0]})", tone="fail")
    word = WORDS[shown.verdict]
    return text_cell(word.upper() if shown.verdict in LOUD else word, tone=shown.verdict)


def _operation(workload: str) -> str:
    operation = OPERATIONS.get(workload)
    if operation is None:
        return workload_facts(workload).title.partition(",")[0].partition(" ")[0]
    return TYPICAL.get(workload) or operation.title


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return DASH
    return milliseconds(value) if unit == "ms" else f"{digits(value, 3)} {unit}"


def _overhead(metric: ComparedMetric) -> str:
    if metric.overhead_percent is None:
        return DASH
    low, high = metric.ci95_percent or (None, None)
    decimals = decimals_for(metric.overhead_percent, low, high)
    if max(abs(each or 0.0) for each in (low, high)) >= WIDE_PERCENT:
        decimals = 0
    text = f"{signed(metric.overhead_percent, decimals)} %"
    if low is None or high is None:
        return text
    bounds = dict.fromkeys(_bounded(each, decimals) for each in (low, high))
    return f"{text} ({' to '.join(bounds)})"


def _bounded(percent: float, decimals: int) -> str:
    """Return a bound; one of more than ten times only says that it is beyond."""
    if abs(percent) > MOST_PERCENT:
        return f">{MOST_PERCENT:,.0f}" if percent > 0 else f"<-{MOST_PERCENT:,.0f}"
    return f"{percent:,.{decimals}f}"


def _more_time(shown: Sequence[tuple[Comparison, ComparedMetric]]) -> tuple[str, ...]:
    """Return the note that says how much longer the open verdicts would take, where the pairs so far tell."""
    waits_s = [_more_seconds(*each) for each in shown if _verdict(*each).tone == "inconclusive"]
    known = [seconds for seconds in waits_s if seconds is not None and seconds >= 1.0]
    return (f"undecided: about {duration(max(known))} more would decide.",) if known else ()


def _more_seconds(comparison: Comparison, metric: ComparedMetric) -> float | None:
    if metric.seconds_needed is not None:
        return metric.seconds_needed - float(comparison.settings.get("seconds") or 0.0)
    series = next((each for each in comparison.pair_series if each.workload == metric.workload), None)
    if not metric.pairs or not metric.pairs_needed or not series:
        return None
    took_s = series.time_s[-1] - series.time_s[0] if series.time_s else 0.0
    return took_s * (metric.pairs_needed / metric.pairs - 1.0)


def _row(record: SharingRecord, technique: str, tenants: int) -> SharedRow | None:
    return next((row for row in record.rows if (row.technique, row.tenants) == (technique, tenants)), None)


def _slowdown(row: SharedRow) -> str:
    value, bounds = row.slowdown.value, row.slowdown.ci95
    if value is None:
        return DASH
    if bounds is None or bounds[0] is None or bounds[1] is None:
        return f"{digits(value, 2)}x"
    return f"{digits(value, 2)}x ({_times(bounds[0])} to {_times(bounds[1])})"


def _times(bound: float) -> str:
    """Return a bound of a slowdown; beyond a hundred times it says only that nothing is known."""
    return "<0.01" if bound < 0.01 else ">100" if bound > 100.0 else digits(bound, 2)
