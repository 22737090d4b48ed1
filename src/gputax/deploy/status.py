"""The status of a deployment, as data and as a checklist: steps with times, pods, last log lines, cost so far."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

from gputax.deploy.cost import Cost, moment, spent
from gputax.deploy.job import pods_of
from gputax.deploy.plan import AwaitJob, Manifest, Plan, Step
from gputax.deploy.state import Deployment, State, StepRecord, is_collected
from gputax.deploy.tools import Tools, redacted
from gputax.errors import GputaxError
from gputax.kubernetes.watch import state_of
from gputax.text import duration

LOG_LINES = 5
# The same as in results/importers/pod_log.py, which would import pydantic.
BLOCK_END = "----- gputax result end -----"


@dataclass(frozen=True)
class PodLine:
    """One pod, as shown in the status."""

    name: str
    phase: str
    node: str
    words: str


@dataclass(frozen=True)
class Standing:
    """Everything that `gputax status` shows."""

    plan: Plan
    state: State
    results: str
    now: datetime.datetime
    cost: Cost
    pods: tuple[PodLine, ...] = ()
    cluster_words: str = ""
    log: tuple[str, ...] = ()
    pod_log: tuple[str, ...] = ()
    results_collected: bool = False
    last_event_at: str = ""
    at_work: bool = True

    @property
    def word(self) -> str:
        """The overall status."""
        if self.state.destroyed_at:
            return "DESTROYED"
        records = [self.state.record(step.name).state for step in self.plan.steps]
        running = "DEPLOYING" if self.at_work else "INTERRUPTED"
        for state, word in (("failed", "FAILED"), ("interrupted", "INTERRUPTED"), ("running", running)):
            if state in records:
                return word
        if all(state == "done" for state in records):
            return "DONE"
        return "SCALED TO ZERO" if "undone" in records else "STOPPED"

    @property
    def idle_s(self) -> float:
        """Seconds since the last event."""
        return (self.now - moment(self.last_event_at)).total_seconds() if self.last_event_at else 0.0


def standing(plan: Plan, deployment: Deployment, tools: Tools, now: datetime.datetime) -> Standing:
    """Read the files, and query the cluster if there is one."""
    events = deployment.events()
    pods, words, pod_log = _pods(plan, deployment.state, tools)
    return Standing(
        plan,
        deployment.state,
        str(deployment.results),
        now,
        spent(plan, events, now),
        pods=pods,
        cluster_words=words,
        log=tuple(deployment.log_tail(LOG_LINES)),
        pod_log=pod_log,
        results_collected=is_collected(deployment, deployment.state.run_id),
        last_event_at=str(events[-1]["at"]) if events else "",
        at_work=deployment.at_work(),
    )


def _pods(plan: Plan, state: State, tools: Tools) -> tuple[tuple[PodLine, ...], str, tuple[str, ...]]:
    job = next((step.action for step in plan.steps if isinstance(step.action, AwaitJob)), None)
    if job is None or state.destroyed_at or state.record("job").state in ("to do", "undone"):
        return (), "", ()
    try:
        pods = pods_of(tools.cluster(), job.namespace, state.run_id)
    except GputaxError as error:
        return (), error.what, ()
    if not pods:
        return (), "no pods of this run exist any more", ()
    try:
        tail = tools.cluster().log(pods[-1]["metadata"]["name"], tail_lines=LOG_LINES, namespace=job.namespace)
        if tail.rstrip().endswith(BLOCK_END):
            tail = "(ends with the complete result block)"
    except GputaxError:
        tail = ""  # a container that has not started has no log
    return tuple(_pod_line(pod) for pod in pods), "", tuple(redacted(tail).splitlines())


def _pod_line(pod: Manifest) -> PodLine:
    found = state_of(pod)
    phase = str((pod.get("status") or {}).get("phase") or "Pending")
    return PodLine(str(pod["metadata"]["name"]), phase, found.node, found.words)


def checklist_text(standing: Standing) -> str:
    """Return the checklist; one line per step, in the plan's order."""
    state, plan = standing.state, standing.plan
    lines = [
        f"{plan.title}",
        f"Status: {standing.word}   run {state.run_id}   started {_clock(state.created_at)}   {standing.results}",
        "",
    ]
    lines += [_step_line(step, state.record(step.name), standing.now) for step in plan.steps]
    for step in plan.steps:
        error = state.record(step.name).error
        if error and state.record(step.name).state == "failed":
            lines += ["", f"Failed: {error.get('what', '')}", f"  next: {error.get('next', '')}"]
    if standing.pods or standing.cluster_words:
        lines += ["", "Pods"]
        lines += [f"  {pod.name}  {pod.phase}  {pod.words}" for pod in standing.pods]
        lines += [f"  {standing.cluster_words}"] if standing.cluster_words else []
    if standing.pod_log:
        lines += ["", "Last lines of the pod's log", *(f"  {line[:160]}" for line in standing.pod_log)]
    if standing.log:
        lines += ["", "Last lines of deployment.log", *(f"  {line[:160]}" for line in standing.log)]
    lines += ["", *_cost_lines(standing)]
    return "\n".join(lines) + "\n"


def _step_line(step: Step, record: StepRecord, now: datetime.datetime) -> str:
    mark = "x" if record.state == "done" else " "
    return f"- [{mark}] {step.title}{_step_words(step, record, now)}"


def _step_words(step: Step, record: StepRecord, now: datetime.datetime) -> str:
    if record.state == "done":
        if record.how == "found":
            return "  (already existed)"
        return f"  ({duration(_span_s(record.begun_at, record.ended_at))})"
    if record.state == "running":
        gone_s = (now - moment(record.begun_at)).total_seconds()
        left_s = step.expected_s - gone_s
        left = f"about {duration(left_s)} remaining" if left_s > 0 else f"{duration(-left_s)} longer than expected"
        return f"  (IN PROGRESS for {duration(gone_s)}, {left})"
    if record.state in ("failed", "interrupted"):
        return f"  ({record.state.upper()} after {duration(_span_s(record.begun_at, record.ended_at))})"
    return "  (removed)" if record.state == "undone" else f"  (about {duration(step.expected_s)})"


def _cost_lines(standing: Standing) -> list[str]:
    if not standing.plan.rates:
        return [f"Cost: {standing.plan.price_note}"]
    cost, limit_s = standing.cost, standing.state.idle_limit_s
    prices = f"{standing.plan.price_note}; gputax cost"
    lines = [f"Cost so far: ${cost.usd:.2f}; now ${cost.usd_per_hour_now:.2f} per hour ({prices})"]
    if cost.usd_per_hour_now and standing.idle_s > limit_s:
        lines.append(
            f"Idle for {duration(standing.idle_s)}, limit {duration(limit_s)}: gputax destroy --out {standing.results}"
        )
    return lines


def standing_data(standing: Standing) -> dict[str, Any]:
    """Return the status for `--json`."""
    state = standing.state
    return {
        "provider": state.provider,
        "title": standing.plan.title,
        "status": standing.word,
        "run_id": state.run_id,
        "results": standing.results,
        "results_home": standing.results_collected,
        "created_at": state.created_at,
        "destroyed_at": state.destroyed_at,
        "idle_s": round(standing.idle_s, 1),
        "idle_limit_s": state.idle_limit_s,
        "steps": [_step_data(step, state.record(step.name)) for step in standing.plan.steps],
        "pods": [vars(pod) for pod in standing.pods],
        "cluster": standing.cluster_words,
        "log": list(standing.log),
        "pod_log": list(standing.pod_log),
        "cost": {**standing.cost.to_dict(), "prices": standing.plan.price_note},
    }


def _step_data(step: Step, record: StepRecord) -> dict[str, Any]:
    return {
        "name": step.name,
        "title": step.title,
        "state": record.state,
        "how": record.how,
        "ours": record.ours,
        "begun_at": record.begun_at,
        "ended_at": record.ended_at,
        "expected_s": step.expected_s,
        "error": record.error,
    }


def _span_s(begun_at: str, ended_at: str) -> float:
    return (moment(ended_at) - moment(begun_at)).total_seconds() if begun_at and ended_at else 0.0


def _clock(text: str) -> str:
    return moment(text).strftime("%Y-%m-%d %H:%M UTC") if text else "never"
