"""`gputax collect`: download the results of a deployment's Job."""

from __future__ import annotations

import json

import click

from gputax.cli.options import Verb, as_json, options
from gputax.errors import GputaxError
from gputax.plan.options import DEPLOYMENT


@click.command(cls=Verb)
@options(DEPLOYMENT, as_json("Write what was downloaded as JSON."))
def collect(out: str, as_json: bool) -> None:
    """Write the Job's benchmark_results.json and its log to the result directory; again and again if you like.

    The record comes from the result block at the end of the pod's log: a pod that has ended can be read, not entered.
    """
    from gputax.deploy.job import collect as download
    from gputax.deploy.job import job_state
    from gputax.deploy.plan import CollectResults
    from gputax.deploy.providers import open_deployment

    deployment, plan, tools = open_deployment(out)
    action = plan.steps[-1].action
    assert isinstance(action, CollectResults)
    with deployment.locked():
        phase = job_state(tools.cluster().get("Job", action.job, namespace=action.namespace)).phase
        if phase == "active":
            raise GputaxError(
                "the Job is still running",
                where=f"Job {action.job}",
                next_step="gputax status --watch, then gputax collect",
            )
        found = download(tools, deployment, action, deployment.state.run_id, plan.lost_log)
        deployment.event("collected", source=found.source)
    if as_json:
        data = {"record": str(found.record), "log": str(found.log), "from": found.source, "results": found.cells}
        click.echo(json.dumps(data, indent=2))
    else:
        click.echo(f"{found.record}: {found.cells} results from {found.source}; log: {found.log}")
