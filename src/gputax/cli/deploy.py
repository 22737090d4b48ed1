"""`gputax deploy`: show the plan and its price, ask, then carry it out; the same command resumes."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gputax import __version__
from gputax.cli.options import Verb, names, options, own, seconds
from gputax.errors import PreflightError, UsageError, unknown_name
from gputax.plan.cells import DEVICE_SYNONYMS
from gputax.plan.options import GKE, IMAGE, OUTPUT, PLACE, PRICE, declared

if TYPE_CHECKING:
    from gputax.deploy.plan import Plan
    from gputax.deploy.state import Deployment

PROVIDERS = ("current", "gke")
# Those that are in the image; a file of the user's is not.
SUITES = ("quick", "standard", "mlperf")
GKE_OPTIONS = ("project", "zone", "machine", "accelerator", "spot", "max_nodes", "cluster", "repository", "builder")
CURRENT_OPTIONS = ("context_", "device_plugin", "price_per_hour")


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
    if provider not in PROVIDERS:
        raise unknown_name("provider", provider, PROVIDERS)
    _refuse_options_of_others(context, provider)
    from gputax.deploy.state import Deployment

    results = Path(out)
    deployment = Deployment(results)
    choices = _choices(provider, chosen, dry_run)
    if dry_run:
        _show_dry_run(provider, choices, deployment)
        return
    with deployment.locked():
        plan = _begin(provider, choices, deployment, chosen, rerun)
        if plan is None:
            click.echo(
                f"Already collected: {results}/benchmark_results.json. Use --rerun to repeat, gputax destroy to remove."
            )
            return
        _carry_out(plan, deployment, yes)
    click.echo(
        f"Results: {results}/benchmark_results.json   next: gputax compare, gputax report {results}, gputax destroy"
    )


def _refuse_options_of_others(context: click.Context, provider: str) -> None:
    others = GKE_OPTIONS if provider == "current" else CURRENT_OPTIONS
    for name in others:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            other = "gke" if provider == "current" else "current"
            raise UsageError(
                f"--{name.rstrip('_').replace('_', '-')} is for the provider {other}",
                next_step=f"gputax deploy {other} …",
            )


def _choices(provider: str, chosen: dict[str, Any], dry_run: bool) -> dict[str, Any]:
    """Turn the command line into the recorded choices; refuse what cannot be before anything is asked of anyone."""
    from gputax.deploy.plan import BenchmarkChoices
    from gputax.deploy.providers.current import CurrentChoices
    from gputax.plan.workloads import WORKLOADS

    if chosen["suite"] not in SUITES:
        raise unknown_name("suite", chosen["suite"], SUITES)
    names(chosen["workload"], "workload", WORKLOADS)
    if chosen["device"] not in ("cpu", "cuda"):
        raise unknown_name("device", chosen["device"], ("cuda", "cpu"), DEVICE_SYNONYMS)
    common = {key: chosen[key] for key in ("suite", "workload", "device", "namespace")}
    common["gpus"] = chosen["gpus"] if chosen["device"] == "cuda" else 0
    common["deadline_s"] = int(seconds(chosen["deadline"], "--deadline"))
    if provider == "gke":
        return _gke_choices(chosen, common, dry_run)
    size: dict[str, Any] = {"cpus": chosen["cpus"] or 2, "memory": chosen["memory"] or "4Gi"}
    image = chosen["image"] or IMAGE
    found, server = (chosen["context_"], "") if dry_run else _cluster_named(chosen["context_"])
    place = CurrentChoices(chosen["device_plugin"], chosen["price_per_hour"], found, server)
    return {"benchmark": asdict(BenchmarkChoices(**common, **size, image=image)), "current": asdict(place)}


def _cluster_named(context: str) -> tuple[str, str]:
    """Read the kubeconfig's context and server, so that the deployment stays with this one."""
    from gputax.kubernetes.client import Cluster

    cluster = Cluster(context)
    return cluster.context, cluster.server


def _gke_choices(chosen: dict[str, Any], common: dict[str, Any], dry_run: bool) -> dict[str, Any]:
    from gputax.deploy.cost import check_place, default_machine, full_accelerator, load_prices
    from gputax.deploy.plan import BenchmarkChoices
    from gputax.deploy.providers.gke import NO_PROJECT, GkeChoices, check_names, default_image, find_project
    from gputax.deploy.tools import RealTools

    if chosen["device"] != "cuda":
        raise UsageError(
            "gke creates GPU nodes, which cost money; a CPU run does not need them",
            where=f"--device {chosen['device']}",
            next_step=f"gputax deploy current --device {chosen['device']}, on a cluster that you have",
        )
    prices = load_prices(Path(chosen["prices"]) if chosen["prices"] else None)
    accelerator = full_accelerator(prices, chosen["accelerator"])
    machine_name = chosen["machine"] or default_machine(prices, accelerator)
    check_place(prices, chosen["zone"], machine_name, accelerator, chosen["gpus"])
    project = find_project(chosen["project"], os.environ, None if dry_run else RealTools()) or NO_PROJECT
    kind = {"machine": machine_name, "accelerator": accelerator, "accelerator_count": chosen["gpus"]}
    others = {key: chosen[key] for key in ("zone", "spot", "max_nodes", "cluster", "repository", "builder")}
    place = GkeChoices(project=project, **kind, **others)
    check_names(place)
    machine = prices.machines[place.machine]
    size: dict[str, Any] = {
        "cpus": chosen["cpus"] or max(1, machine.vcpus - 1),
        "memory": chosen["memory"] or f"{int(machine.memory_gb * 0.6)}Gi",
    }
    image = chosen["image"] or default_image(place, __version__)
    return {
        "benchmark": asdict(BenchmarkChoices(**common, **size, image=image)),
        "gke": asdict(place),
        "build": not chosen["image"],
        "prices": chosen["prices"],
    }


def _show_dry_run(provider: str, choices: dict[str, Any], deployment: Deployment) -> None:
    from gputax.deploy.providers import plan_of
    from gputax.report.deployments import write_deployment_plan, write_plan

    run_id = deployment.state.run_id if deployment.exists() else "dry-run"
    plan = plan_of(provider, choices, run_id, deployment.results)
    write_deployment_plan(plan, deployment.path, sys.stdout)
    for path in write_plan(plan, deployment.path):
        click.echo(f"wrote {path}", err=True)
    if "PROJECT_ID" in plan.title:
        click.echo("PROJECT_ID is a placeholder: set your project with --project", err=True)
    click.echo("Nothing was touched.", err=True)


def _begin(
    provider: str, choices: dict[str, Any], deployment: Deployment, chosen: dict[str, Any], rerun: bool
) -> Plan | None:
    """Make or find the state; None where the results were downloaded already."""
    from gputax.deploy.providers import plan_of
    from gputax.deploy.state import begin_state, is_collected

    state = begin_state(provider, choices, deployment, seconds(chosen["idle_limit"], "--idle-limit"), rerun)
    if is_collected(deployment, state.run_id):
        return None
    if provider == "gke":
        _check_gke(choices, fresh=not state.record("gpu-pool").ours)
    return plan_of(provider, choices, state.run_id, deployment.results)


def _check_gke(choices: dict[str, Any], fresh: bool) -> None:
    from gputax.deploy.cost import load_prices
    from gputax.deploy.providers.gke import GkeChoices, check_account, check_programs, check_quota
    from gputax.deploy.tools import RealTools

    place, tools = GkeChoices(**choices["gke"]), RealTools()
    check_account(place, tools)
    check_programs(place, choices["build"], Path())
    if fresh:
        check_quota(place, load_prices(Path(choices["prices"]) if choices["prices"] else None), tools)


def _carry_out(plan: Plan, deployment: Deployment, yes: bool) -> None:
    from gputax.deploy.providers import tools_for
    from gputax.deploy.runner import Runner
    from gputax.report.deployments import write_deployment_plan, write_plan

    write_deployment_plan(plan, deployment.path, sys.stderr)
    if not yes:
        ask_consent("Carry out this plan?", "gputax deploy … --yes")
    write_plan(plan, deployment.path)
    deployment.save(deployment.state)
    deployment.event("deploy-begun", provider=plan.provider)
    Runner(plan, deployment, tools_for(plan, deployment.state), lambda line: click.echo(line, err=True)).execute()
    deployment.event("deploy-done")


def ask_consent(question: str, next_step: str) -> None:
    """Ask on a terminal; elsewhere consent must be given in words."""
    if not sys.stdin.isatty():
        raise PreflightError("cannot ask for confirmation: stdin is not a terminal", next_step=next_step)
    if not click.confirm(question, err=True):
        raise PreflightError("not confirmed: nothing was changed", next_step=next_step)
