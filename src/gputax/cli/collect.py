"""`gputax collect`: download the results of a deployment's Job."""

from __future__ import annotations

import json

import click

from gputax.cli.options import Verb, as_json, options
from gputax.plan.options import DEPLOYMENT


@click.command(cls=Verb)
@options(DEPLOYMENT, as_json("Write what was downloaded as JSON."))
def collect(out: str, as_json: bool) -> None:
    """Write the Job's benchmark_results.json and its log to the result directory. Safe to repeat.

    The record comes from the result block at the end of the pod's log: a pod that has ended can be read, not entered.
    """
    from gputax import api

    found = api.collect(out)
    if as_json:
        data = {"record": str(found.record), "log": str(found.log), "from": found.source, "results": found.cells}
        click.echo(json.dumps(data, indent=2))
    else:
        click.echo(f"{found.record}: {found.cells} results from {found.source}; log: {found.log}")
