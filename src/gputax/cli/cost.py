"""`gputax cost`: what a deployment has cost, by which prices and by which method."""

from __future__ import annotations

import json
import sys

import click

from gputax.cli.options import Verb, as_json, options
from gputax.plan.options import DEPLOYMENT


@click.command(cls=Verb)
@options(DEPLOYMENT, as_json("Write the figures as JSON."))
def cost(out: str, as_json: bool) -> None:
    """Add up a deployment's hours, from its own events, at the prices of a dated table."""
    from gputax import api

    bill = api.cost(out)
    if as_json:
        click.echo(json.dumps(bill.to_dict(), indent=2))
    else:
        from gputax.report.deployments import write_cost

        write_cost(bill, sys.stdout)
