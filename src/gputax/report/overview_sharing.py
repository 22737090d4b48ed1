"""The first screen of sharing experiments: the slowdown by tenants, or by a neighbour; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputax.report import wording
from gputax.report.model import Fact, KeyNumber, OverviewRow
from gputax.report.overview_layers import from_to
from gputax.report.shared_points import Experiment, Point, technique_title
from gputax.report.sharing_answers import at_most_tenants, slower
from gputax.results.documents.sharing import SharedRow


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
        slowdown = wording.finite(row.slowdown.value)
        if slowdown is None or point.tenants == 1:
            return Fact(f"{workload}: mean latency {wording.number(row.mean_ms.value)} ms under {point.label}")
        times = _times(slowdown, None, None)
        return Fact(f"{point.tenants} {workload} tenants: latency {times} with {point.label}")
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
        return _neighbour_rows(shared)
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
