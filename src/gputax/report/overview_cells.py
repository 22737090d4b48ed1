"""The first screen of runs that nothing is compared with: what each cell came to; pure."""

from __future__ import annotations

from collections.abc import Sequence

from gputax.report import wording
from gputax.report.grouping import Measured
from gputax.report.model import Fact, KeyNumber, OverviewRow


def cells_title(cells: Sequence[Measured]) -> Fact:
    """Return what was measured, and whether all of it counts."""
    workloads = list(dict.fromkeys(cell.benchmark.workload for cell in cells))
    labels = list(dict.fromkeys(cell.label for cell in cells))
    invalid = sum(not cell.benchmark.valid for cell in cells)
    end = f"{invalid} not valid" if invalid else "all valid"
    what = workloads[0] if len(workloads) == 1 else wording.counted(len(workloads), "workload")
    where = labels[0] if len(labels) == 1 else wording.counted(len(labels), "environment")
    text = f"{what} on {where}: {wording.counted(len(cells), 'cell')} measured, {end}"
    return Fact(text, "fail" if invalid else "")


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
        told = ", ".join(f"{name} {wording.number(each)} ms" for name, each in rest if wording.finite(each) is not None)
        rows.append(
            OverviewRow(
                name=name, value=value, low=low, high=high, text=text, tip=f"{name}: {text}; {told}", beside=told,
                worst="" if benchmark.valid else wording.marked("fail").replace("fail", "not valid"),
                worst_tone="" if benchmark.valid else "fail",
            )
        )  # fmt: skip
    return "throughput, samples per second" if by_rate else "p50 latency, ms", rows


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
