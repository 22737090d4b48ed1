"""The first screen: a title of at most twelve words, the rows of one chart and three numbers; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gputax.plan.shares import BESIDE
from gputax.report import wording
from gputax.report.answers import LayerAnswer
from gputax.report.charts.overview import overview_chart
from gputax.report.grouping import Measured
from gputax.report.model import Chart, Fact, KeyNumber, Overview, OverviewRow, Tone
from gputax.report.overview_layers import from_to, layer_numbers, layer_rows, layers_title
from gputax.report.sharing_answers import Experiment, Point, at_most_tenants, slower, technique_title
from gputax.report.sources import ComparisonSource
from gputax.results.documents.run import Benchmark
from gputax.results.documents.sharing import SharedRow
from gputax.text import digits

MOST_WORDS = 12
# More rows do not fit on one screen; all of them are in the tables.
MOST_ROWS = 8
NUMBERS = 3
CAPTION = "Dot: the value. Pale bar: its 95 % interval."
CAPTION_LAYERS = "Dot: the overhead. Pale bar: its 95 % interval. Upright tick: the budget."
WORD = re.compile(r"\S*\w\S*")


def overview_of(
    answers: Sequence[LayerAnswer],
    cells: Sequence[Measured],
    shared: Sequence[Experiment],
    comparisons: Sequence[ComparisonSource],
    *,
    fallback: Fact,
    measured: str,
) -> Overview:
    """Return the first screen: layers where any were compared, else tenants that share, else measured cells."""
    sides = {(side.label, side.device_label) for source in comparisons for side in source.comparison.sides}
    apart = [cell for cell in cells if (cell.label, cell.device_label) not in sides]
    compared_on = _once(device for answer in answers for device in answer.pair.devices)
    shared_on, measured_on = _once(each.device for each in shared), _once(cell.device_label for cell in cells)
    several = len(_once([*compared_on, *shared_on, *measured_on])) > 1
    numbers = _interleaved(
        layer_numbers(answers, comparisons) if answers else (), cell_numbers(apart), sharing_numbers(shared)
    )
    if several:
        numbers = tuple(replace(each, label=wording.on_device(each.label, [each.device])) for each in numbers)
    tenants = sharing_rows(shared)
    caption = CAPTION
    if answers:
        title, (axis, rows), devices = layers_title(answers), layer_rows(answers), compared_on
        caption = CAPTION_LAYERS
    elif tenants is not None:
        title, (axis, rows), devices = sharing_title(shared), tenants, shared_on
    elif cells:
        title, (axis, rows), devices = cells_title(cells), cell_rows(cells), measured_on
    else:
        return Overview(Fact(limited(fallback.text), fallback.tone))
    title = Fact(limited(title.text), title.tone)
    if not rows:
        return Overview(title, None, numbers)
    if several:
        caption = f"{wording.on_device('Measured', devices)}. {caption}"
    if len(rows) > MOST_ROWS:
        caption += f" {wording.counted(len(rows) - MOST_ROWS, 'more row')} in the tables below."
    spec = overview_chart(title.text, [*devices, f"measured {measured}"], axis, _seen_first(rows))
    chart = Chart("overview", wording.on_device(title.text, devices), spec, caption, headline=True)
    return Overview(title, chart, numbers)


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _seen_first(rows: Sequence[OverviewRow]) -> list[OverviewRow]:
    """Return as many rows as fit on one screen, in their order: those that fail are never the ones without room."""
    places = sorted(range(len(rows)), key=lambda i: "fail" not in (rows[i].tone, rows[i].worst_tone))[:MOST_ROWS]
    return [rows[i] for i in sorted(places)]


def limited(text: str) -> str:
    """Return at most twelve words; a name made of many is cut."""
    found = list(WORD.finditer(text))
    return text if len(found) <= MOST_WORDS else f"{text[: found[MOST_WORDS - 1].end()].rstrip(' ,;:.')}…"


def _interleaved(*groups: Sequence[KeyNumber]) -> tuple[KeyNumber, ...]:
    """Return three numbers: the first of each group, then the second of each."""
    longest = max(len(group) for group in groups)
    ordered = [group[i] for i in range(longest) for group in groups if i < len(group)]
    return tuple(ordered[:NUMBERS])


def cells_title(cells: Sequence[Measured]) -> Fact:
    """Return what was measured, and whether all of it counts."""
    workloads = list(dict.fromkeys(cell.benchmark.workload for cell in cells))
    labels = list(dict.fromkeys(cell.label for cell in cells))
    invalid = sum(not cell.benchmark.valid for cell in cells)
    disturbed = sum(bool(cell.benchmark.disturbed) for cell in cells)
    end = f"{invalid} not valid" if invalid else "all valid"
    end += f", {disturbed} disturbed" if disturbed else ""
    what = workloads[0] if len(workloads) == 1 else wording.counted(len(workloads), "workload")
    where = labels[0] if len(labels) == 1 else wording.counted(len(labels), "environment")
    text = f"{what} on {where}: {wording.counted(len(cells), 'cell')} measured, {end}"
    return Fact(text, "fail" if invalid else "inconclusive" if disturbed else "")


def cell_rows(cells: Sequence[Measured]) -> tuple[str, list[OverviewRow]]:
    """Return one row per cell: throughput, or where no cell is about that, the median latency."""
    by_rate = any(cell.scenario in ("offline", "saturate") for cell in cells)
    several = len({cell.label for cell in cells}) > 1
    rows = []
    for cell in cells:
        benchmark = cell.benchmark
        value = wording.finite(benchmark.throughput_samples_per_sec if by_rate else benchmark.latency_p50_ms)
        if value is None:
            continue
        shape = cell.run.shapes.get(benchmark.cell)
        bounds = shape.rate_ci95 if by_rate and shape is not None else None
        low, high = (None, None) if bounds is None else bounds
        name = wording.cell_title(benchmark.workload, cell.scenario, benchmark.batch_size)
        name = f"{cell.label}, {name}" if several else name
        between = f" ({wording.between(bounds)})" if bounds else ""
        text = f"{wording.number(value)} {'samples/s' if by_rate else 'ms'}{between}"
        rest = [("p50", benchmark.latency_p50_ms)] if by_rate else []
        rest += [("p90", benchmark.latency_p90_ms), ("p99", benchmark.latency_p99_ms)]
        others = ", ".join(
            f"{name} {wording.number(each)} ms" for name, each in rest if wording.finite(each) is not None
        )
        rows.append(
            OverviewRow(
                name=name, value=value, low=low, high=high, text=text, tip=f"{name}: {text}; {others}", beside=others,
                worst=_label(benchmark)[0],
                worst_tone=_label(benchmark)[1],
            )
        )  # fmt: skip
    return "throughput, samples per second" if by_rate else "p50 latency, ms", rows


def _label(benchmark: Benchmark) -> tuple[str, Tone]:
    """Return what a reader must know before the number: that it is not valid, or was disturbed."""
    if not benchmark.valid:
        return f"{wording.MARKS['fail']} not valid", "fail"
    if benchmark.disturbed:
        return f"{wording.MARKS['inconclusive']} disturbed", "inconclusive"
    return "", ""


def cell_numbers(cells: Sequence[Measured]) -> list[KeyNumber]:
    """Return the highest throughput, the lowest latency and how many cells are valid."""
    if not cells:
        return []
    numbers = []
    rated = [cell for cell in cells if wording.finite(cell.benchmark.throughput_samples_per_sec) is not None]
    if rated:
        best = max(rated, key=lambda cell: cell.benchmark.throughput_samples_per_sec)
        text = f"{wording.number(best.benchmark.throughput_samples_per_sec)} /s"
        numbers.append(KeyNumber(text, f"highest throughput: {_cell_name(best)}", best.device_label))
    timed = [
        (cell, value)
        for cell in cells
        if cell.scenario not in ("offline", "saturate") and (value := wording.finite(cell.benchmark.latency_p50_ms))
    ]
    if timed:
        cell, value = min(timed, key=lambda each: each[1])
        numbers.append(
            KeyNumber(f"{wording.number(value)} ms", f"lowest p50 latency: {_cell_name(cell)}", cell.device_label)
        )
    valid = sum(cell.benchmark.valid for cell in cells)
    numbers.append(
        KeyNumber(
            f"{valid} of {len(cells)}", "cells valid", "; ".join(dict.fromkeys(cell.device_label for cell in cells))
        )
    )
    return numbers


def _cell_name(cell: Measured) -> str:
    return f"{wording.cell_title(cell.benchmark.workload, cell.scenario, cell.benchmark.batch_size)} on {cell.label}"


def sharing_title(shared: Sequence[Experiment]) -> Fact:
    """Return what the most tenants, or the worst neighbour, cost one of them."""
    devices = {each.device for each in shared if each.measured}
    if len(devices) > 1:
        return Fact(f"Slowdown by tenants on {len(devices)} devices")
    experiment = next((each for each in shared if each.measured), shared[0])
    workload = experiment.record.workload
    points = _at_most(experiment)
    if points:
        point, row = min(points, key=lambda each: each[1].mean_ms.value or 0.0)
        if any(each.disturbed for each, _ in points):
            tenants = wording.counted(point.tenants, "tenant")
            return Fact(f"{tenants} of {workload}: undecided, the machine was disturbed", "inconclusive")
        slowdown = wording.finite(row.slowdown.value)
        if slowdown is None or point.tenants == 1:
            return Fact(f"{workload}: mean latency {wording.number(row.mean_ms.value)} ms under {point.label}")
        times = _times(slowdown, None, None)
        return Fact(f"{point.tenants} {workload} tenants: latency {times} with {point.label}")
    if experiment.record.obtained:
        return _obtained_title(experiment)
    certain = [row for each in shared for row in each.record.neighbours if row.valid and slower(row.slowdown_percent)]
    if not certain:
        return Fact(f"{workload}: no neighbour slows it measurably")
    worst = max(certain, key=lambda row: row.slowdown_percent.value or 0.0)
    cost = wording.overhead(worst.slowdown_percent.value, None, "%").split(" (")[0].lstrip("+")
    return Fact(f"A {worst.aggressor} neighbour slows {workload} by {cost}")


def _at_most(experiment: Experiment) -> list[tuple[Point, SharedRow]]:
    return [(point, point.row) for point in at_most_tenants(experiment) if point.row is not None]


def _shared_points(shared: Iterable[Experiment]) -> list[tuple[Experiment, Point, SharedRow]]:
    return [(each, point, row) for each in shared for point, row in each.measured]


def sharing_rows(shared: Sequence[Experiment]) -> tuple[str, list[OverviewRow]] | None:
    """Return the slowdown by tenants; the mean latency where nothing says what one tenant alone has."""
    points = _shared_points(shared)
    if not points:
        return _obtained_rows(shared) or _neighbour_rows(shared)
    slowed = any(wording.finite(row.slowdown.value) is not None and row.tenants > 1 for _, _, row in points)
    several_devices = len({each.device for each in shared}) > 1
    rows = []
    for experiment, point, row in points:
        figure = row.slowdown if slowed else row.mean_ms
        value = wording.finite(figure.value)
        if value is None or (slowed and point.tenants == 1):
            continue
        low, high = (None, None) if figure.ci95 is None else (wording.finite(bound) for bound in figure.ci95)
        place = f"{experiment.title}, " if len(shared) > 1 else ""
        name = f"{place}{point.label}, {wording.counted(point.tenants, 'tenant')}"
        text = (
            _times(value, low, high) if slowed else wording.measured(value, figure.ci95, "ms").replace("95 % CI ", "")
        )
        beside = f"mean {wording.number(row.mean_ms.value)} ms" if slowed else wording.counted(row.repeats, "repeat")
        own = f"on {experiment.device}" if several_devices else ""
        rows.append(
            OverviewRow(name, value, low, high, text, f"{name}: {text}", beside=beside, worst=_fairness(row), own=own),
        )
    return "slowdown: mean latency over that of one tenant" if slowed else "mean latency, ms", rows


def _times(value: float, low: float | None, high: float | None) -> str:
    between = f" ({low:.2f} to {high:.2f})" if low is not None and high is not None else ""
    return f"×{value:.2f}{between}"


def _fairness(row: SharedRow) -> str:
    fairness = wording.finite(row.jain.value)
    return f"fairness {fairness:.3f} (1 is equal)" if fairness is not None and row.tenants > 1 else ""


def _obtained_title(experiment: Experiment) -> Fact:
    rows = [row for row in experiment.record.obtained if row.verdict is not None]
    passed, failed = (sum(row.verdict == word for row in rows) for word in ("pass", "fail"))
    text = f"{passed} of {len(rows)} shares are what was asked for"
    if failed:
        return Fact(f"{text}, {failed} are not", "fail")
    return Fact(text, "pass" if rows and passed == len(rows) else "inconclusive")


def _obtained_rows(shared: Sequence[Experiment]) -> tuple[str, list[OverviewRow]] | None:
    rows = []
    for experiment in shared:
        for row in experiment.record.obtained:
            value = wording.finite(row.obtained.value)
            if value is None:
                continue
            low, high = (None if bound is None else 100.0 * bound for bound in row.obtained.ci95 or (None, None))
            beside = "alone" if row.situation == "alone" else f"beside {BESIDE[row.situation]}"
            name = f"tenant {row.tenant}, {row.resource}, {beside}, {technique_title(row.technique)}"
            between = f" ({digits(low, 3)} to {digits(high, 3)})" if low is not None and high is not None else ""
            word = "undecided" if row.verdict == "inconclusive" else row.verdict or "not asked for"
            asked = "no share asked for" if row.asked is None else f"asked for {digits(100.0 * row.asked, 3)} %"
            text = f"{digits(100.0 * value, 3)} %{between}, {word}"
            mark = None if row.asked is None else 100.0 * row.asked
            tone: Tone = row.verdict or ""
            rows.append(OverviewRow(name, 100.0 * value, low, high, text, f"{name}: {text}", mark, tone, beside=asked))
    return ("share of the device, %", rows) if rows else None


def _neighbour_rows(shared: Sequence[Experiment]) -> tuple[str, list[OverviewRow]] | None:
    rows = []
    for experiment in shared:
        for row in experiment.record.neighbours:
            value = wording.finite(row.slowdown_percent.value)
            if value is None or not row.valid:
                continue
            low, high = wording.known_bounds(row.slowdown_percent.ci95, "%")
            name = f"{row.aggressor} under {technique_title(row.technique)}"
            cost = wording.overhead(value, row.slowdown_percent.ci95, "%")
            text, beside = cost.replace("95 % CI ", ""), f"{row.victim} measured"
            rows.append(OverviewRow(name, value, low, high, text, f"{name}: {cost}", beside=beside))
    return ("slowdown by a neighbour, %", rows) if rows else None


def sharing_numbers(shared: Sequence[Experiment]) -> list[KeyNumber]:
    """Return slowdown, latency and throughput of the most tenants under their best technique."""
    experiment = next((each for each in shared if each.measured), None)
    if experiment is None:
        return []
    point, row = min(_at_most(experiment), key=lambda each: each[1].mean_ms.value or 0.0)
    alone = next(
        (each for other, each in experiment.measured if other.label == point.label and other.tenants == 1), None
    )
    named = f"{wording.counted(point.tenants, 'tenant')}, {point.label}"
    device = experiment.device
    numbers = []
    slowdown = wording.finite(row.slowdown.value)
    if slowdown is not None and point.tenants > 1:
        numbers.append(KeyNumber(_times(slowdown, None, None), f"slowdown of {named}", device))
    if alone is not None and point.tenants > 1 and alone.mean_ms.value is not None and row.mean_ms.value is not None:
        text = from_to(alone.mean_ms.value, row.mean_ms.value, "ms")
        numbers.append(KeyNumber(text, f"mean latency, 1 to {point.tenants} tenants", device))
    else:
        numbers.append(KeyNumber(f"{wording.number(row.mean_ms.value)} ms", f"mean latency, {named}", device))
    if wording.finite(row.aggregate_per_s.value) is not None:
        numbers.append(KeyNumber(f"{wording.number(row.aggregate_per_s.value)} /s", f"all together, {named}", device))
    return numbers
