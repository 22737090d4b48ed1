"""`gputax status`: the state of a deployment."""

from __future__ import annotations

import json
import sys
import time

import click

from gputax.cli.options import Verb, as_json, options, own
from gputax.plan.options import DEPLOYMENT, OUTPUT


@click.command(cls=Verb)
@options(
    DEPLOYMENT,
    own("watch", "Repeat until the deployment has ended.", False, group=OUTPUT),
    own("interval", "With --watch: seconds.", 5.0, least=0.2, show_default=True, group=OUTPUT),
    as_json("Write it as JSON; with --watch one document per line."),
)
def status(out: str, watch: bool, interval: float, as_json: bool) -> None:
    """Show the steps as a check list with times, the pods, the last log lines and the cost so far."""
    from gputax import api
    from gputax.deploy.status import checklist_text, standing_data

    while True:
        found = api.status(out)
        if as_json:
            click.echo(json.dumps(standing_data(found), indent=None if watch else 2))
        else:
            from gputax.report.exporters.console_text import Screen

            click.echo("\x1b[2J\x1b[H" if watch and sys.stdout.isatty() else "", nl=False)
            screen = Screen(sys.stdout)
            for line in checklist_text(found).splitlines():
                screen.say(line)
        if not watch or found.word != "DEPLOYING":
            return
        time.sleep(interval)
