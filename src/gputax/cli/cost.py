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
    from gputax.deploy.cost import METHOD, price_facts, spent
    from gputax.deploy.providers import plan_of
    from gputax.deploy.state import find_deployment, now

    deployment = find_deployment(out)
    state = deployment.state
    plan = plan_of(state.provider, state.choices, state.run_id, deployment.results)
    found = spent(plan, deployment.events(), now())
    facts = price_facts(state.provider, state.choices)
    if as_json:
        click.echo(json.dumps({**found.to_dict(), "method": METHOD, **facts}, indent=2))
    else:
        from gputax.report.deployments import write_cost

        write_cost(plan, found, facts, sys.stdout)
