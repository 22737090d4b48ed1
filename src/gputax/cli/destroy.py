"""`gputax destroy`: delete a deployment, or scale its nodes to zero."""

from __future__ import annotations

import click

from gputax.cli.options import Verb, options, own, seconds
from gputax.plan.options import DEPLOYMENT, OUTPUT, PLACE


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
    from gputax.cli.deploy import ask_consent
    from gputax.deploy.providers import open_deployment
    from gputax.deploy.state import now
    from gputax.deploy.teardown import Teardown
    from gputax.text import duration

    limit_s = seconds(if_idle, "--if-idle") if if_idle else 0.0
    deployment, plan, tools = open_deployment(out)
    if deployment.state.destroyed_at:
        click.echo(f"{deployment.results}: destroyed at {deployment.state.destroyed_at}")
        return
    with deployment.locked():
        teardown = Teardown(plan, deployment, tools, lambda line: click.echo(line, err=True))
        if if_idle:
            idle_s = teardown.idle_s(now())
            if idle_s < limit_s:
                click.echo(f"{deployment.results}: in use, or idle for only {duration(idle_s)}; nothing was removed")
                return
        elif not yes:
            what = "the Job and the GPU nodes of" if scale_to_zero else "everything that gputax created for"
            ask_consent(f"Remove {what} {deployment.results} ({plan.title})?", "gputax destroy --yes")
        teardown.rescue()
        if scale_to_zero:
            teardown.scale_to_zero()
            click.echo(f"{deployment.results}: the Job and its GPU nodes are gone; the cluster remains: gputax cost")
        else:
            teardown.destroy()
            click.echo(f"{deployment.results}: destroyed; results and logs are kept on this disk")
