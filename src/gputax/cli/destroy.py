"""`gputax destroy`: delete a deployment, or scale its nodes to zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gputax.cli.options import Verb, options, own, seconds
from gputax.plan.options import DEPLOYMENT, OUTPUT, PLACE

if TYPE_CHECKING:
    from gputax.deploy.plan import Plan


@click.command(cls=Verb)
@options(
    DEPLOYMENT,
    own("scale-to-zero", "Delete only the Job and the GPU nodes; keep the cluster.", False, group=PLACE),
    own("if-idle", "For cron: only if idle for at least this long, e.g. 2h.", metavar="TIME", group=PLACE),
    own("yes", "Do not ask; implied by --if-idle.", False, group=OUTPUT),
)
def destroy(out: str, scale_to_zero: bool, if_idle: str, yes: bool) -> None:
    """Remove what `gputax deploy` made, in reverse order, and nothing that was there before.

    Results that were not collected are collected first. Safe to repeat, also when half of it is gone.
    """
    from gputax import api
    from gputax.cli.deploy import ask_consent
    from gputax.deploy.state import find_deployment
    from gputax.text import duration

    def approve(plan: Plan) -> None:
        if not yes and not if_idle:
            what = "the Job and the GPU nodes of" if scale_to_zero else "everything that gputax created for"
            ask_consent(f"Remove {what} {find_deployment(out).results} ({plan.title})?", "gputax destroy --yes")

    done = api.destroy(
        out,
        scale_to_zero=scale_to_zero,
        if_idle_s=seconds(if_idle, "--if-idle") if if_idle else None,
        approve=approve,
        say=lambda line: click.echo(line, err=True),
    )
    words = {
        "destroyed": "destroyed; results and logs are kept on this disk",
        "scaled to zero": "the Job and its GPU nodes are gone; the cluster remains: gputax cost",
        "in use": f"in use, or idle for only {duration(done.idle_s)}; nothing was removed",
        "destroyed before": f"destroyed at {done.destroyed_at}",
    }
    click.echo(f"{done.results}: {words[done.outcome]}")
