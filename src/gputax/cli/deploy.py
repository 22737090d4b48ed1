"""The life of a deployment: `gputax deploy`, `status`, `collect`, `cost` and `destroy`.

`deploy` shows the plan and its price, asks, then carries it out; the same command resumes.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gputax.cli.options import Verb, as_json, names, options, own, seconds
from gputax.errors import PreflightError
from gputax.plan.options import DEPLOYMENT, GKE, IMAGE, OUTPUT, PLACE, PRICE, declared

if TYPE_CHECKING:
    from gputax.deploy.plan import Plan


@click.command(cls=Verb)
@click.argument("provider", default="current", metavar="[current|gke]")
@options(
    declared("out", help="Where results and the deployment's files go.", default="results/baseline", show_default=True),
    declared("suite", help="quick, standard or mlperf.", default="standard"),
    declared("workload", help="What the Job measures; a comma list."),
    declared("device", help="cuda, or cpu for a cluster without GPUs.", default="cuda"),
    declared("gpus", help="GPUs of the pod; none with --device cpu.", default=1, least=1, most=16, show_default=True),
    declared("cpus", help="Whole CPUs of the pod. [default: 2; gke: all but one]", most=None),
    declared(
        "memory", help="Memory of the pod. [default: 4Gi; gke: 60 % of the machine's]", default="", show_default=False
    ),
    declared(
        "image", help=f"A finished image. [default: {IMAGE}; gke: built and pushed]", default="", short=True,
        show_default=False,
    ),
    declared("namespace", help="Namespace of the Job."),
    own("deadline", "Deadline after which Kubernetes ends the Job.", "2h", show_default=True, group=PLACE),
    own("idle-limit", "Warn in every verb when a deployment is idle for longer.", "2h", show_default=True, group=PLACE),
    declared("context", help="current: the kubeconfig's context. [default: its current one]"),
    own(
        "device-plugin",
        "current: whether to install NVIDIA's if it is missing.",
        True,
        negation="no-device-plugin",
        group=PLACE,
    ),
    own(
        "with-xen", "current: then the same in Xen guests, and compare (docs/xen.md).", False, group=PLACE,
    ),
    own("xen-nodes", "current: nodes to label for --with-xen; a comma list.", group=PLACE),
    own("price-per-hour", "current: dollars per hour, for the cost estimate.", 0.0, least=0, group=PRICE),
    own("project", "gke: project id. [default: gcloud's setting]", short=True, group=GKE),
    own("zone", "gke: zone.", "us-central1-a", short=True, show_default=True, group=GKE),
    own("machine", "gke: machine type. [default: n1-standard-4, or what the GPU comes with]", group=GKE),
    own("accelerator", "gke: GPU type, e.g. T4.", "nvidia-tesla-t4", short=True, show_default=True, group=GKE),
    own("spot", "gke: use Spot nodes: cheaper, may be preempted.", False, group=GKE),
    own("max-nodes", "gke: the pool scales from 0 to this.", 2, least=1, most=100, show_default=True, group=GKE),
    own("cluster", "gke: the cluster's name.", "gpu-benchmark-cluster", show_default=True, group=GKE),
    own("repository", "gke: Artifact Registry repository.", "gputax", show_default=True, group=GKE),
    own("builder", "gke: builds the image.", "docker", choices=("docker", "podman"), show_default=True, group=GKE),
    own("prices", "Your own price table (see docs/deploy.md). [default: ours, dated]", group=PRICE),
    declared("dry-run", help="Write all manifests and commands; change nothing."),
    own("rerun", "Run the Job again and replace its results.", False, group=OUTPUT),
    own("yes", "Carry out the plan without asking.", False, short=True, group=OUTPUT),
)  # fmt: skip
@click.pass_context
def deploy(
    context: click.Context, /, provider: str, out: str, dry_run: bool, rerun: bool, yes: bool, **chosen: Any
) -> int:
    """Run the benchmark on a Kubernetes cluster and download the results.

    First the plan: every command, the price per hour and the expected total. After an interrupt or a failure the same
    command goes on from there. `gputax status` shows its state, `gputax destroy` deletes it.
    """
    from gputax import api
    from gputax.api.deployments import guest_results

    wanted = _wanted(context, chosen)
    guests = {}
    if wanted.get("with_xen"):
        guests[guest_results(out)] = api.deploy_plan(provider, out=out, in_guests=True, **wanted)
    if dry_run:
        _show_dry_run({Path(out): api.deploy_plan(provider, out=out, **wanted), **guests})
        return 0
    asked = False

    def approve(plan: Plan) -> None:
        nonlocal asked
        from gputax.deploy.state import Deployment
        from gputax.report.deployments import write_deployment_plan

        if asked:
            return
        asked = True
        for place, each in {Path(out): plan, **guests}.items():
            write_deployment_plan(each, Deployment(place).path, sys.stderr)
        if not yes:
            ask_consent("Carry out this plan?", "gputax deploy … --yes")

    done = api.deploy(
        provider,
        out=out,
        rerun=rerun,
        idle_limit_s=seconds(chosen["idle_limit"], "--idle-limit"),
        approve=approve,
        say=lambda line: click.echo(line, err=True),
        **wanted,
    )
    if done.new:
        click.echo(f"Results: {done.record}   next: gputax compare, gputax report {Path(out)}, gputax destroy")
    else:
        click.echo(f"Already collected: {done.record}. Use --rerun to repeat, gputax destroy to remove.")
    return _compare(done.record.parent, done.guest_record.parent) if done.guest_record else 0


def _compare(base: Path, guest: Path) -> int:
    """Compare the Job in pods with the Job in Xen guests; the exit code is that of `gputax compare`."""
    from gputax import api
    from gputax.cli.compare import write_table
    from gputax.cli.duet import exit_code

    comparison = api.compare(base, guest, command=shlex.join(["gputax", "compare", str(base), str(guest)]))
    write_table(comparison, sys.stdout)
    return exit_code(comparison)


def _wanted(context: click.Context, chosen: dict[str, Any]) -> dict[str, Any]:
    """Return what was given; the defaults are those of the request."""
    from gputax.plan.workloads import WORKLOADS

    names(chosen["workload"], "workload", WORKLOADS)
    given = {
        name: value
        for name, value in chosen.items()
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
    }
    given.pop("idle_limit", None)
    if "deadline" in given:
        given["deadline_s"] = seconds(given.pop("deadline"), "--deadline")
    if "context_" in given:
        given["context"] = given.pop("context_")
    return given


def _show_dry_run(plans: Mapping[Path, Plan]) -> None:
    from gputax.deploy.state import Deployment
    from gputax.report.deployments import write_deployment_plan, write_plan

    for results, plan in plans.items():
        folder = Deployment(results).path
        write_deployment_plan(plan, folder, sys.stdout)
        for path in write_plan(plan, folder):
            click.echo(f"wrote {path}", err=True)
        if "PROJECT_ID" in plan.title:
            click.echo("PROJECT_ID is a placeholder: set your project with --project", err=True)
    click.echo("Nothing was touched.", err=True)


def ask_consent(question: str, next_step: str) -> None:
    """Ask on a terminal; elsewhere consent must be given in words."""
    if not sys.stdin.isatty():
        raise PreflightError("cannot ask for confirmation: stdin is not a terminal", next_step=next_step)
    if not click.confirm(question, err=True):
        raise PreflightError("not confirmed: nothing was changed", next_step=next_step)


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
