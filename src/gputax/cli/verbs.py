"""The verbs of `gputax`: the group that imports a verb only when it is used."""

from __future__ import annotations

import importlib

import click

from gputax import __version__
from gputax.errors import unknown_name

# Verb -> (module:object, help). The help stands here so that `gputax --help` imports no verb (measured: 60 ms).
VERBS: dict[str, tuple[str, str]] = {
    "run": ("gputax.cli.run:run", "Measure inference in an environment."),
    "duet": ("gputax.cli.duet:duet", "Say what one environment costs over another: pairs, interval, verdict."),
    "compare": ("gputax.cli.compare:compare", "Compare results that are on disk already; weaker than a duet."),
    "share": ("gputax.cli.share:share", "Let tenants share a device: techniques compared, neighbours that disturb."),
    "advise": ("gputax.cli.advise:advise", "Say which technique and how many tenants meet a latency target."),
    "client": ("gputax.cli.client:client", "The tenant: constant inferences, with metrics for Prometheus."),
    "report": ("gputax.cli.report:report", "Make the page, the table or the data of results on disk."),
    "exec": ("gputax.cli.exec:exec_", "Run any program of yours in an environment, e.g. behind the GPU proxy."),
    "proxy": ("gputax.cli.proxy:proxy", "Start the GPU proxy on this node, or show who uses it."),
    "deploy": ("gputax.cli.deploy:deploy", "Bring the benchmark to a Kubernetes cluster and its results home."),
    "status": ("gputax.cli.status:status", "Show where a deployment stands: steps, pods, logs, cost so far."),
    "collect": ("gputax.cli.collect:collect", "Bring the results of a deployment's Job home."),
    "cost": ("gputax.cli.cost:cost", "Say what a deployment has cost, by a dated price table."),
    "destroy": ("gputax.cli.destroy:destroy", "Take a deployment away, or only its machines."),
    "models": ("gputax.cli.models:models", "List, build or fetch the workloads' model files."),
    "doctor": ("gputax.cli.doctor:doctor", "Say what is wrong here, and the command that mends it."),
}


class Verbs(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order in which people meet them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one verb."""
        if cmd_name not in VERBS:
            raise unknown_name("command", cmd_name, VERBS)
        module, _, name = VERBS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of verbs without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb, text) for verb, (_, text) in VERBS.items()])


@click.command(
    cls=Verbs,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="gputax")
@click.option("--debug", is_flag=True, help="Show the Python traceback of an error.")
@click.pass_context
def app(context: click.Context, /, debug: bool) -> None:
    """What does each layer between a model and its GPU cost?

    Results go to stdout, progress to stderr. Exit codes: 0 ok, 1 error, 2 usage, 3 preflight failed, 4 some cells
    failed, 5 results invalid, 6 budget exceeded, 7 inconclusive, 130 interrupted.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
