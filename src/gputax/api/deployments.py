"""Deployments: the benchmark as a Job on a Kubernetes cluster, from its plan to its removal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gputax.errors import GputaxError
from gputax.plan.cells import StrPath

if TYPE_CHECKING:
    from gputax.deploy.cost import Bill
    from gputax.deploy.job import Collected
    from gputax.deploy.plan import Plan
    from gputax.deploy.status import Standing

OUT = "results/baseline"
IDLE_LIMIT_S = 7200.0
Say = Callable[[str], None]
Approve = Callable[["Plan"], None]


@dataclass(frozen=True)
class Deployed:
    """What `deploy` leaves behind: the record of its Job."""

    record: Path
    new: bool
    """False where the results of this deployment were collected before, so that nothing was done."""
    guest_record: Path | None = None
    """`with_xen`: the record of the Job in Xen guests."""


@dataclass(frozen=True)
class Removal:
    """What `destroy` did."""

    results: Path
    outcome: Literal["destroyed", "scaled to zero", "in use", "destroyed before"]
    idle_s: float = 0.0
    """`in use`: how long the deployment has been idle, which is less than was asked for."""
    destroyed_at: str = ""
    """`destroyed before`: when."""


def deploy_plan(provider: str = "current", *, out: StrPath = OUT, in_guests: bool = False, **options: Any) -> Plan:
    """Return every step, command and price of a deployment; nothing is changed and no cluster is asked.

    `options` are the fields of `gputax.deploy.choices.DeployRequest`, such as `suite="quick"` or `accelerator="L4"`.
    `in_guests` is the second half of a deployment `with_xen`.
    """
    from gputax.deploy.choices import choices_of, deploy_request, guest_choices
    from gputax.deploy.providers import plan_of
    from gputax.deploy.state import Deployment

    request = deploy_request(provider, **options)
    choices = choices_of(request, dry_run=True)
    if in_guests:
        out, choices = guest_results(out), guest_choices(request, choices)
    deployment = Deployment(Path(out))
    run_id = deployment.state.run_id if deployment.exists() else "dry-run"
    return plan_of(provider, choices, run_id, deployment.results)


def guest_results(out: StrPath) -> Path:
    """Return where the results of the Job in Xen guests go: beside those of the baseline."""
    path = Path(out)
    return path.with_name(f"{path.name}-xen")


def deploy(
    provider: str = "current",
    *,
    out: StrPath = OUT,
    rerun: bool = False,
    idle_limit_s: float = IDLE_LIMIT_S,
    approve: Approve = lambda plan: None,
    say: Say = lambda text: None,
    **options: Any,
) -> Deployed:
    """Run the benchmark on a cluster and download its results; the same call resumes. On `gke` this costs money.

    `approve` is called with the plan before anything is changed, and refuses it by raising. `options` are those of
    `deploy_plan`. With `with_xen` the same Job runs in Xen guests afterwards; its results go to `OUT-xen`.
    """
    from gputax.deploy.choices import choices_of, deploy_request, guest_choices

    request = deploy_request(provider, **options)
    choices = choices_of(request)
    done = _deploy(provider, Path(out), choices, rerun, idle_limit_s, approve, say)
    if not request.with_xen:
        return done
    guests = guest_choices(request, choices)
    guest = _deploy(provider, guest_results(out), guests, rerun, idle_limit_s, approve, say)
    return Deployed(done.record, done.new or guest.new, guest.record)


def _deploy(
    provider: str, out: Path, choices: dict[str, Any], rerun: bool, idle_limit_s: float, approve: Approve, say: Say
) -> Deployed:
    from gputax.deploy.choices import check_gke
    from gputax.deploy.providers import plan_of, tools_for
    from gputax.deploy.runner import Runner
    from gputax.deploy.state import Deployment, begin_state, is_collected, record_path
    from gputax.report.deployments import write_plan

    deployment = Deployment(out)
    with deployment.locked():
        state = begin_state(provider, choices, deployment, idle_limit_s, rerun)
        if is_collected(deployment, state.run_id):
            return Deployed(record_path(deployment), new=False)
        if provider == "gke":
            check_gke(choices, fresh=not state.record("gpu-pool").ours)
        plan = plan_of(provider, choices, state.run_id, deployment.results)
        approve(plan)
        write_plan(plan, deployment.path)
        deployment.save(deployment.state)
        deployment.event("deploy-begun", provider=plan.provider)
        with closing(tools_for(plan, deployment.state)) as tools:
            Runner(plan, deployment, tools, say).execute()
        deployment.event("deploy-done")
    return Deployed(record_path(deployment), new=True)


def status(out: StrPath = "") -> Standing:
    """Return the state of a deployment (default: the only one under results/): steps, pods, log lines, cost so far."""
    from gputax.deploy.providers import open_deployment
    from gputax.deploy.state import now
    from gputax.deploy.status import standing

    deployment, plan, tools = open_deployment(str(out))
    with closing(tools):
        return standing(plan, deployment, tools, now())


def collect(out: StrPath = "") -> Collected:
    """Download the record and the log of a deployment's Job into its result directory; may be repeated."""
    from gputax.deploy.job import collect as download
    from gputax.deploy.job import job_state
    from gputax.deploy.plan import CollectResults
    from gputax.deploy.providers import open_deployment

    deployment, plan, tools = open_deployment(str(out))
    action = plan.steps[-1].action
    assert isinstance(action, CollectResults)
    with closing(tools), deployment.locked():
        phase = job_state(tools.cluster().get("Job", action.job, namespace=action.namespace)).phase
        if phase == "active":
            raise GputaxError(
                "the Job is still running",
                where=f"Job {action.job}",
                next_step="gputax status --watch, then gputax collect",
            )
        found = download(tools, deployment, action, deployment.state.run_id, plan.lost_log)
        deployment.event("collected", source=found.source)
    return found


def cost(out: StrPath = "") -> Bill:
    """Add up a deployment's hours, from its own events, at the prices of a dated table."""
    from gputax.deploy.cost import Bill, price_facts, spent
    from gputax.deploy.providers import plan_of
    from gputax.deploy.state import find_deployment, now

    deployment = find_deployment(str(out))
    state = deployment.state
    plan = plan_of(state.provider, state.choices, state.run_id, deployment.results)
    return Bill(plan, spent(plan, deployment.events(), now()), price_facts(state.provider, state.choices))


def destroy(
    out: StrPath = "",
    *,
    scale_to_zero: bool = False,
    if_idle_s: float | None = None,
    approve: Approve = lambda plan: None,
    say: Say = lambda text: None,
) -> Removal:
    """Remove what `deploy` made, in reverse order, or only its Job and GPU nodes; uncollected results are collected.

    With `if_idle_s` only a deployment that was idle for so long is removed. `approve` is called with the plan first.
    """
    from gputax.deploy.providers import open_deployment
    from gputax.deploy.state import now
    from gputax.deploy.teardown import Teardown

    deployment, plan, tools = open_deployment(str(out))
    if deployment.state.destroyed_at:
        return Removal(deployment.results, "destroyed before", destroyed_at=deployment.state.destroyed_at)
    with closing(tools), deployment.locked():
        teardown = Teardown(plan, deployment, tools, say)
        if if_idle_s is not None and (idle_s := teardown.idle_s(now())) < if_idle_s:
            return Removal(deployment.results, "in use", idle_s)
        approve(plan)
        teardown.rescue()
        if scale_to_zero:
            teardown.scale_to_zero()
            return Removal(deployment.results, "scaled to zero")
        teardown.destroy()
        return Removal(deployment.results, "destroyed")
