"""The first screen: a title of at most twelve words, the rows of one chart and three numbers; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gputax.report import wording
from gputax.report.answers import LayerAnswer
from gputax.report.charts.overview import overview_chart
from gputax.report.grouping import Measured
from gputax.report.model import Chart, Fact, KeyNumber, Overview, OverviewRow
from gputax.report.overview_cells import cell_numbers, cell_rows, cells_title
from gputax.report.overview_layers import layer_numbers, layer_rows, layers_title
from gputax.report.overview_sharing import sharing_numbers, sharing_rows, sharing_title
from gputax.report.shared_points import Experiment
from gputax.report.sources import ComparisonSource

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
