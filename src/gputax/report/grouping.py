"""Put compared metrics and measured cells into the groups that a table or a chart shows together; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gputax.plan.metrics import headline_order
from gputax.report.distributions import Curve
from gputax.report.sources import ComparisonSource, RunSource
from gputax.report.wording import cell_title, finite
from gputax.results.documents.comparison import ComparedMetric, Side
from gputax.results.documents.run import Benchmark

SOFTWARE_THROTTLES = re.compile(r"^(software device \([^\[\]]*?) \[[^\[\]]*\]")


@dataclass(frozen=True)
class Compared:
    """A metric with the two sides it names."""

    metric: ComparedMetric
    base: Side
    other: Side

    @property
    def devices(self) -> tuple[str, ...]:
        """The labels of both sides' devices; one where they are the same."""
        return tuple(dict.fromkeys((self.base.device_label, self.other.device_label)))

    @property
    def cell(self) -> str:
        """The cell's name without its environment."""
        return cell_title(self.metric.workload, self.metric.scenario, self.metric.batch_size)


@dataclass(frozen=True)
class Pair:
    """Everything that was compared between one base and one other side, on one device."""

    base: Side
    other: Side
    devices: tuple[str, ...]
    rows: tuple[Compared, ...]

    @property
    def title(self) -> str:
        """The two sides in words."""
        return f"{self.other.label} against {self.base.label}"


@dataclass(frozen=True)
class Measured:
    """A cell of a run, with the label that its environment has in this report."""

    label: str
    device_label: str
    benchmark: Benchmark
    run: RunSource

    @property
    def scenario(self) -> str:
        """The scenario as on the command line."""
        return self.benchmark.scenario.replace("_", "-")


def compared(comparisons: Iterable[ComparisonSource]) -> tuple[Compared, ...]:
    """Return every metric of every comparison with its sides."""
    found = []
    for source in comparisons:
        sides = {side.label: side for side in source.comparison.sides}
        for metric in source.comparison.metrics:
            base = sides.get(metric.base) or _unknown_side(metric.base)
            found.append(Compared(metric, base, sides.get(metric.other) or _unknown_side(metric.other)))
    return tuple(found)


def pairs_of(rows: Iterable[Compared]) -> tuple[Pair, ...]:
    """Return the rows by base and other side; the same two names on another device are another pair.

    The software device names its throttles: with and without them it is one device, and what lies on it one layer.
    """
    groups: dict[tuple[object, ...], list[Compared]] = {}
    for row in rows:
        devices = dict.fromkeys(SOFTWARE_THROTTLES.sub(r"\1", device) for device in row.devices)
        groups.setdefault((row.base.label, row.other.label, *devices), []).append(row)
    return tuple(
        Pair(
            rows[0].base, rows[0].other, tuple(dict.fromkeys(name for row in rows for name in row.devices)), tuple(rows)
        )
        for rows in groups.values()
    )


def by_cell(rows: Iterable[Compared]) -> dict[tuple[str, tuple[str, ...]], list[Compared]]:
    """Return the rows by cell and device, across pairs: what one waterfall may add up."""
    groups: dict[tuple[str, tuple[str, ...]], list[Compared]] = {}
    for row in rows:
        groups.setdefault((row.cell, row.devices), []).append(row)
    return groups


def headline_metric(rows: Iterable[Compared]) -> str | None:
    """Return the metric that says most of these rows: the scenario's own, if it has numbers."""
    counts: dict[str, int] = {}
    scenario = ""
    for row in rows:
        scenario = row.metric.scenario
        if finite(row.metric.overhead_percent) is not None:
            counts[row.metric.metric] = counts.get(row.metric.metric, 0) + 1
    if not counts:
        return None
    order = [*headline_order(scenario), *counts]
    return max(counts, key=lambda name: (counts[name], -order.index(name)))


def run_labels(runs: Sequence[RunSource]) -> list[str]:
    """Return each run's environment; where several share one, with its directory."""
    names = [run.record.environment for run in runs]
    directories = [run.directory.rstrip("/").rsplit("/", 1)[-1] for run in runs]
    return [
        f"{name} ({directory})" if names.count(name) > 1 else name
        for name, directory in zip(names, directories, strict=True)
    ]


def measured_cells(runs: Iterable[RunSource]) -> tuple[Measured, ...]:
    """Return every cell, labelled by environment; where two runs share one, by directory too."""
    runs = tuple(runs)
    cells = []
    for run, label in zip(runs, run_labels(runs), strict=True):
        for benchmark in run.record.cells:
            tenants = f" ×{benchmark.tenants}" if benchmark.tenants != 1 else ""
            cells.append(Measured(label + tenants, run.record.device_label, benchmark, run))
    return tuple(cells)


def chart_groups(cells: Iterable[Measured]) -> dict[tuple[str, str], list[tuple[str, Measured]]]:
    """Return (title, device) -> labelled cells for one chart each.

    Several environments: one chart per workload, scenario and batch, one mark per environment. A single one: its
    batch sizes share the chart.
    """
    cells = tuple(cells)
    several = len({cell.label for cell in cells}) > 1
    groups: dict[tuple[str, str], list[tuple[str, Measured]]] = {}
    for cell in cells:
        batch = cell.benchmark.batch_size
        title = cell_title(cell.benchmark.workload, cell.scenario, batch if several else None)
        label = cell.label if several else f"{cell.label} b{batch}"
        groups.setdefault((title, cell.device_label), []).append((label, cell))
    return groups


def curves_of(cells: Iterable[tuple[str, Measured]]) -> dict[str, Curve]:
    """Return the latency curves of a chart's cells; a cell with too few samples has none."""
    shapes = {label: cell.run.shapes.get(cell.benchmark.cell) for label, cell in cells}
    return {label: shape.curve for label, shape in shapes.items() if shape is not None and shape.curve is not None}


def _unknown_side(label: str) -> Side:
    return Side(label=label, environment=label, device_label="an unknown device", source="", format="unknown")
