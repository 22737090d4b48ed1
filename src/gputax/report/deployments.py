"""Write the plan, the standing and the cost of a deployment for a console."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from gputax.deploy.cost import METHOD, Cost
from gputax.deploy.plan import Plan
from gputax.deploy.text import expectation, step_lines
from gputax.report.exporters.console_text import Screen
from gputax.report.machine_tables import cost_table, price_table


def write_deployment_plan(plan: Plan, folder: Path, stream: TextIO, width: int | None = None) -> None:
    """Write every step with its commands, then the price per hour and what is expected in total."""
    screen = Screen(stream, width)
    for line in step_lines(plan, folder):
        screen.line(line)
    screen.say("")
    table = price_table(plan)
    if table is not None:
        screen.table(table)
    for line in expectation(plan).splitlines():
        screen.say(line)
    for note in plan.notes:
        screen.say(f"Note: {note}")


def write_cost(plan: Plan, cost: Cost, facts: Mapping[str, Any], stream: TextIO, width: int | None = None) -> None:
    """Write what a deployment has cost, by which method and at which prices."""
    screen = Screen(stream, width)
    if not plan.rates:
        screen.say(plan.title)
        screen.say(f"no price is known: {plan.price_note}")
        return
    screen.table(cost_table(plan, cost))
    screen.say(f"Method: {METHOD}")
    if facts:
        screen.say(f"Prices: {plan.price_note}; {facts['note']}")
        for source in facts["sources"]:
            screen.line(f"  {source}")
