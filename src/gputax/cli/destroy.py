"""`gputax destroy`: take a deployment away, or only its machines."""

from __future__ import annotations

import click

from gputax.cli.options import seconds


@click.command()
@click.option("--out", default="", help="The deployment's result directory. [default: the only one under results/]")
@click.option("--scale-to-zero", is_flag=True, help="Delete only the Job and the GPU nodes; keep the cluster.")
@click.option("--if-idle", default="", metavar="TIME", help="For cron: only if idle for at least this long, e.g. 2h.")
@click.option("--yes", is_flag=True, help="Do not ask; implied by --if-idle.")
def destroy(out: str, scale_to_zero: bool, if_idle: str, yes: bool) -> None:
    """Remove what `gputax deploy` made, in reverse order, and nothing that was there before.

    Results that are not home yet are collected first. Safe to repeat, also when half of it is gone.
    """
    from gputax.cli.deploy import ask_consent
    from gputax.cli.deployments import opened
    from gputax.deploy.state import now
    from gputax.deploy.teardown import Teardown
    from gputax.text import duration

    limit_s = seconds(if_idle, "--if-idle") if if_idle else 0.0
    deployment, plan, tools = opened(out)
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
