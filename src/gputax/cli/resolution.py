"""`gputax doctor --resolution`: the smallest overhead that this machine can tell from nothing, and in what time."""

from __future__ import annotations

import sys

import click

from gputax.cli.progress import Progress
from gputax.places import refuse_unknown
from gputax.plan.cells import Setup
from gputax.plan.driver import refuse_driver_contradictions
from gputax.plan.engines import waiting_passively
from gputax.plan.micro import engine_for
from gputax.plan.workloads import workload_facts
from gputax.results.documents.comparison import Resolution
from gputax.text import duration, percent

# Half-widths that decide the budgets: a quarter of 10 %, 5 % and 1 %.
TARGETS_PERCENT = (2.5, 1.25, 0.25)


def show_resolution(environment: str, workload: str, engine: str, max_time: float, *, as_json: bool) -> None:
    """Measure two equal sides and say what that means for a budget."""
    from gputax.measure.duet.execution import machine_resolution
    from gputax.measure.duet.sides import SideSpec

    refuse_unknown(environment)
    workload_facts(workload)
    engine = engine_for(workload, engine)
    setup = Setup(workload, engine=waiting_passively(engine), sample_count=32, max_batch=1)
    refuse_driver_contradictions(environment, setup)
    with Progress(sys.stderr, max_time) as progress:
        found = machine_resolution(SideSpec(environment, environment, setup), max_time, progress.say, progress.pair)
    if as_json:
        click.echo(found.model_dump_json(indent=2))
        return
    from gputax.report.exporters.console_text import Screen

    screen = Screen(sys.stdout)
    for line in sentences(found, environment, workload, engine):
        screen.say(line)


def sentences(found: Resolution, environment: str, workload: str, engine: str) -> list[str]:
    """Return the finding for people."""
    lines = [
        f"A/A of {workload} ({engine}) in {environment}: ±{percent(found.half_width_percent)} "
        f"from {found.pairs:,} pairs in {duration(found.seconds)}"
    ]
    for target in TARGETS_PERCENT:
        minutes = minutes_for(found, target)
        lines.append(f"  ±{target:g} % (decides a budget of {4 * target:g} %) takes about {duration(60.0 * minutes)}")
    if not found.contains_zero:
        lines.append("  The interval leaves out zero although both sides are equal: something disturbs this machine.")
    return lines


def minutes_for(found: Resolution, target_percent: float) -> float:
    """Return the time for a half-width: it shrinks with the square root of the time."""
    return found.seconds * (found.half_width_percent / target_percent) ** 2 / 60.0
