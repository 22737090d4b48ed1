"""The verbs of `gputax`: the group that imports a verb only when it is used."""

from __future__ import annotations

import importlib

import click

from gputax import __version__
from gputax.errors import unknown_name

# Group -> verb -> (module:object, help). The help is here so that `gputax --help` imports no verb (measured: 60 ms).
GROUPED: dict[str, dict[str, tuple[str, str]]] = {
    "Measure": {
        "demo": ("gputax.cli.demo:demo", "Measure this machine in five minutes: one screen, one report."),
        "run": ("gputax.cli.run:run", "Measure inference in an environment."),
        "duet": ("gputax.cli.duet:duet", "Measure what one environment costs over another: interval and verdict."),
        "accuracy": ("gputax.cli.accuracy:accuracy", "Measure a model's accuracy on a dataset (top-1, F1)."),
    },
    "Compare": {
        "compare": ("gputax.cli.compare:compare", "Compare results on disk; weaker than a duet."),
        "report": ("gputax.cli.report:report", "Write a report of results on disk: page, table or data."),
        "advise": ("gputax.cli.advise:advise", "Find the technique and number of tenants that meet a latency target."),
    },
    "Share": {
        "share": (
            "gputax.cli.share:share",
            "Share a device between tenants: compare techniques, or add noisy neighbours.",
        ),
        "client": ("gputax.cli.client:client", "Run one tenant: constant load, with metrics for Prometheus."),
    },
    "Cluster": {
        "deploy": ("gputax.cli.deploy:deploy", "Run the benchmark on a Kubernetes cluster and download the results."),
        "status": ("gputax.cli.deploy:status", "Show the state of a deployment: steps, pods, logs, cost so far."),
        "collect": ("gputax.cli.deploy:collect", "Download the results of a deployment's Job."),
        "cost": ("gputax.cli.deploy:cost", "Show what a deployment has cost, by a dated price table."),
        "destroy": ("gputax.cli.deploy:destroy", "Delete a deployment, or scale its nodes to zero."),
    },
    "Maintain": {
        "doctor": ("gputax.cli.doctor:doctor", "Diagnose this machine or cluster and suggest fixes."),
        "verify": ("gputax.cli.verify:verify", "Show which mode this GPU or pod is really in, and who else is on it."),
        "selftest": (
            "gputax.cli.selftest:selftest",
            "Compare a driver with libvgpu and the GPU proxy, for a day with a GPU.",
        ),
        "models": ("gputax.cli.models:models", "List, build or download the workloads' model files."),
        "proxy": ("gputax.cli.proxy:proxy", "Start the GPU proxy on this node, or show its tenants."),
        "exec": ("gputax.cli.exec:exec_", "Run any program in an environment, e.g. behind the GPU proxy."),
    },
}
VERBS: dict[str, tuple[str, str]] = {verb: row for group in GROUPED.values() for verb, row in group.items()}
SYNONYMS = {
    "help": "--help",
    "version": "--version",
    "bench": "run",
    "benchmark": "run",
    "measure": "run",
    "start": "demo",
    "tour": "demo",
    "quickstart": "demo",
    "diff": "compare",
    "check": "doctor",
    "mode": "verify",
    "self-test": "selftest",
    "tenant": "client",
    "up": "deploy",
    "down": "destroy",
    "delete": "destroy",
    "undeploy": "destroy",
    "price": "cost",
    "download": "collect",
    "logs": "status",
}


class Verbs(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order in which people meet them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one verb."""
        if cmd_name not in VERBS:
            raise unknown_name("command", cmd_name, VERBS, SYNONYMS)
        module, _, name = VERBS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of verbs without importing them."""
        for group, verbs in GROUPED.items():
            with formatter.section(group):
                formatter.write_dl([(verb.ljust(len("compare")), text) for verb, (_, text) in verbs.items()])


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
    failed, 5 results invalid or disturbed, 6 budget exceeded, 7 undecided, 130 interrupted.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
