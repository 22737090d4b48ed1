"""What `gputax share --dry-run` shows: the cells, and how long they take at least."""

from __future__ import annotations

import dataclasses
import json

import click

from gputax.cli.progress import cell_title, expected_s
from gputax.plan.techniques import SharePlan


def show_plan(plan: SharePlan, victim: str, aggressors: tuple[str, ...], as_json: bool) -> int:
    """Show the parts of the experiment in their order; measure nothing."""
    if aggressors:
        from gputax.measure.neighbours.record import shown_cells

        cells = shown_cells(plan, victim, len(aggressors))
        parts = [f"{name}-{part}" for name in plan.techniques for part in (*aggressors, "isolation")]
    else:
        from gputax.measure.share.documents import shown_cell

        cells = tuple(shown_cell(plan, cell) for cell in plan.cells())
        parts = [cell.id for cell in plan.cells()]
    total_s = sum(map(expected_s, cells))
    if as_json:
        told = {"cells": parts, "at_least_s": round(total_s, 1), "plan": dataclasses.asdict(plan)}
        click.echo(json.dumps(told, indent=2))
        return 0
    for part, cell in zip(parts, cells, strict=True):
        click.echo(f"{part:<24} {cell_title(cell):<56} at least {expected_s(cell):5.0f} s")
    click.echo(f"{len(cells)} cells, at least {total_s:.0f} s ({total_s / 60:.0f} min). A slow workload takes longer:")
    click.echo("10 runs of the slowest tenant must fit, and each cell starts new processes. Nothing was measured.")
    return 0
