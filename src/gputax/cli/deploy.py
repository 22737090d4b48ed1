"""`gputax deploy`: show the plan and its price, ask, then carry it out; the same command resumes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gputax.cli.options import Verb, names, options, own, seconds
from gputax.errors import PreflightError
from gputax.plan.options import GKE, IMAGE, OUTPUT, PLACE, PRICE, declared

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
) -> None:
    """Run the benchmark on a Kubernetes cluster and download the results.

    First the plan: every command, the price per hour and the expected total. After an interrupt or a failure the same
    command goes on from there. `gputax status` shows its state, `gputax destroy` deletes it.
    """
    from gputax import api

    wanted = _wanted(context, chosen)
    if dry_run:
        _show_dry_run(api.deploy_plan(provider, out=out, **wanted), Path(out))
        return

    def approve(plan: Plan) -> None:
        from gputax.deploy.state import Deployment
        from gputax.report.deployments import write_deployment_plan

        write_deployment_plan(plan, Deployment(Path(out)).path, sys.stderr)
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


def _show_dry_run(plan: Plan, results: Path) -> None:
    from gputax.deploy.state import Deployment
    from gputax.report.deployments import write_deployment_plan, write_plan

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
