"""The parts of a report that come from comparisons: waterfalls, metric tables, pairs over time; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gputax.report import wording
from gputax.report.answers import LayerAnswer
from gputax.report.charts.comparison import overhead_chart, pairs_chart, waterfall_chart
from gputax.report.comparison_tables import layers_table, metrics_table
from gputax.report.fingerprints import flattened
from gputax.report.grouping import Compared, Pair, by_cell, compared, headline_metric
from gputax.report.layers import waterfalls
from gputax.report.model import Chart, Column, Section, Table, notes_once, text_cell
from gputax.report.side_by_side import side_by_side
from gputax.report.sources import ComparisonSource
from gputax.results.documents.comparison import PairSeries
from gputax.results.importers.source import UNNAMED

OVERHEAD_CAPTION = (
    "Dot: the overhead. Pale bar: its 95 % interval. Dark tick: the budget. Green: pass, red: fail, amber: undecided."
)
WATERFALL_CAPTION = (
    "Each bar begins where the layer below it ends and is as long as its own cost; the thin line is that cost's 95 % "
    "interval."
)
DERIVED_CAPTION = " Blue steps are derived from two comparisons and not judged."
PAIRS_CAPTION = (
    "Each dot is one pair. The blue band is the 95 % interval of the mean, the dashed line the budget. The two "
    "orders should mix: if one lies above the other, order matters."
)


# More than these push the rest of the page out of sight.
MOST_OPEN_CHARTS = 4


def answer_charts(answers: Sequence[LayerAnswer]) -> tuple[Chart, ...]:
    """Return every metric of the only layer against its budget; several layers are in the first chart."""
    if len(answers) != 1 or len(answers[0].pair.rows) < 2:
        return ()
    pair = answers[0].pair
    rows = [(f"{wording.metric_title(row.metric.metric)}\n{row.cell}", row) for row in pair.rows]
    spec = overhead_chart(pair.title, distinct(rows))
    if spec is None:
        return ()
    return (Chart("overhead", wording.on_device(pair.title, pair.devices), spec, OVERHEAD_CAPTION, headline=True),)


def distinct(rows: Sequence[tuple[str, Compared]]) -> list[tuple[str, Compared]]:
    """Return the rows with labels of their own: equal ones would share a line of the chart."""
    seen: dict[str, int] = {}
    found = []
    for label, row in rows:
        seen[label] = seen.get(label, 0) + 1
        found.append((label if seen[label] == 1 else f"{label} ({seen[label]})", row))
    return found


def layers_section(rows: Sequence[Compared], *, detail: bool) -> Section | None:
    """Return the waterfall of every cell that has at least two layers; `detail`: not on the screen of `compare`.

    Where nothing says which layer lies on which, all of them begin at the base: a table says that, a waterfall not.
    """
    charts: list[Chart] = []
    tables: list[Table] = []
    for (cell, devices), group in by_cell(rows).items():
        metric = headline_metric(group)
        if metric is None:
            continue
        found = waterfalls([row for row in group if row.metric.metric == metric])
        for waterfall in found:
            if len(waterfall.steps) < 2:
                continue
            table = replace(layers_table(cell, metric, devices, [waterfall]), detail=detail)
            if not waterfall.stacked:
                tables.append(table)
                continue
            title = wording.metric_title(metric) if cell == UNNAMED else f"{cell}: {wording.metric_title(metric)}"
            derived = any(step.derived for step in waterfall.steps)
            charts.append(
                Chart(
                    "waterfall",
                    wording.on_device(title, devices),
                    waterfall_chart(title, devices, waterfall),
                    WATERFALL_CAPTION + (DERIVED_CAPTION if derived else ""),
                    headline=True,
                    table=table,
                )
            )
    if not charts and not tables:
        return None
    return Section("layers", "What each layer costs on its own", charts=tuple(charts), tables=tuple(tables))


def metrics_section(pairs: Sequence[Pair], *, answered: bool) -> Section | None:
    """Return every metric of every pair; above them all environments side by side, unless that is the answer."""
    together = side_by_side(pairs)
    tables, notes = notes_once(tuple(replace(metrics_table(pair), detail=together is not None) for pair in pairs))
    if together is not None and not answered:
        tables = (together, *tables)
    return Section("metrics", "Every metric and its verdict", tables=tables, notes=notes) if tables else None


def pairs_section(comparisons: Sequence[ComparisonSource]) -> Section | None:
    """Return the pairs over time, of the one metric per cell that says most."""
    charts = []
    for source in comparisons:
        sides = source.comparison.sides[:2]
        devices = [side.device_label for side in sides]
        for series, row in _chosen_series(source):
            measure = f"{series.workload} {series.scenario}, {wording.metric_title(series.metric)}"
            title = f"{' against '.join(side.label for side in reversed(sides))}: {measure}"
            spec = pairs_chart(title, devices, series, row)
            if spec is not None:
                charts.append(Chart("pairs", wording.on_device(title, devices), spec, PAIRS_CAPTION))
    if not charts:
        return None
    return Section("pairs", "The pairs over time", charts=tuple(charts), folded=len(charts) > MOST_OPEN_CHARTS)


def _chosen_series(source: ComparisonSource) -> list[tuple[PairSeries, Compared | None]]:
    """Return one series per cell and its metric: with every metric drawn, twenty cells would not fit into 2 MB."""
    rows = compared([source])
    groups: dict[tuple[str, str], list[PairSeries]] = {}
    for series in source.comparison.pair_series:
        groups.setdefault((series.workload, series.scenario), []).append(series)
    chosen: list[tuple[PairSeries, Compared | None]] = []
    for cell, group in groups.items():
        own = {row.metric.metric: row for row in rows if (row.metric.workload, row.metric.scenario) == cell}
        name = headline_metric([own[series.metric] for series in group if series.metric in own])
        series = next((series for series in group if series.metric == name), group[0])
        chosen.append((series, own.get(series.metric)))
    return chosen


def settings_table(comparisons: Sequence[ComparisonSource]) -> Table | None:
    """Return how each comparison was measured: slot, drop rule, restarts, seeds, stopping."""
    columns = (Column("comparison", "comparison"), Column("setting", "setting"), Column("value", "value"))
    rows = [
        (text_cell(source.comparison.question), text_cell(name), text_cell(value))
        for source in comparisons
        if source.comparison.settings
        for name, value in flattened(source.comparison.settings).items()
    ]
    devices = [side.device_label for source in comparisons for side in source.comparison.sides]
    title = wording.on_device("Settings of the comparison", devices)
    return Table("settings", title, columns, tuple(rows)) if rows else None
