"""One Job: follow it until it ends, give up early if it cannot start, and collect the record and the log it leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gputax.deploy.plan import AwaitJob, CollectResults, Command, Manifest
from gputax.deploy.state import Deployment, now_text, record_path
from gputax.deploy.tools import ClusterAccess, Tools, redacted
from gputax.errors import CellError, GputaxError, ResultsError
from gputax.kubernetes.objects import RUN_LABEL
from gputax.kubernetes.watch import PodState, end_words, exit_code, state_of, unschedulable_step
from gputax.results.files import write_text

Phase = Literal["absent", "active", "complete", "failed"]
# The kubelet retries an image pull forever; after this time we give up.
STUCK_LIMIT_S = 45.0
POLL_S = 3.0


@dataclass(frozen=True)
class JobState:
    """A Job's status, reduced to what matters here."""

    phase: Phase
    reason: str = ""
    run_id: str = ""


def job_state(job: Manifest | None) -> JobState:
    """Interpret a Job's status; pure."""
    if job is None:
        return JobState("absent")
    run_id = str(((job.get("metadata") or {}).get("labels") or {}).get(RUN_LABEL, ""))
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            words = ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))
            return JobState("complete" if condition["type"] == "Complete" else "failed", words, run_id)
    return JobState("active", "", run_id)


def pods_of(cluster: ClusterAccess, namespace: str, run_id: str) -> list[Manifest]:
    """Return the run's pods, oldest first."""
    pods = cluster.list("Pod", labels={RUN_LABEL: run_id}, namespace=namespace)
    return sorted(pods, key=lambda pod: str((pod.get("metadata") or {}).get("creationTimestamp") or ""))


def await_job(tools: Tools, action: AwaitJob, run_id: str, say: Callable[[str], None]) -> None:
    """Return when the Job is complete; raise with the cluster's reason if it fails or cannot start."""
    cluster = tools.cluster()
    started_s = stuck_since_s = tools.seconds()
    said, was_stuck = "", False
    while True:
        job = job_state(cluster.get("Job", action.job, namespace=action.namespace))
        pods = pods_of(cluster, action.namespace, run_id)
        if job.phase == "complete":
            return
        if job.phase == "failed":
            raise _failed(action, job, pods)
        if job.phase == "absent":
            raise GputaxError("the Job no longer exists", where=_where(action), next_step="run the same command again")
        state = state_of(pods[-1]) if pods else PodState("waiting", "waiting for the Job's pod")
        now_s = tools.seconds()
        if state.words != said and state.reason != "PodCompleted":
            say(state.words)
            said = state.words
        if (state.phase == "stuck") != was_stuck:
            was_stuck, stuck_since_s = state.phase == "stuck", now_s
        if was_stuck and now_s - stuck_since_s > STUCK_LIMIT_S:
            raise _cannot_start(action, state, "use --image with an image that the nodes can pull")
        refused = state.reason == "Unschedulable" and now_s - started_s > action.unschedulable_s
        if refused and not _node_promised(cluster, pods[-1], action.namespace):
            raise _cannot_start(action, state, unschedulable_step(state.words))
        if state.phase == "waiting" and now_s - started_s > action.pending_limit_s:
            raise _cannot_start(action, state, unschedulable_step(state.words))
        if now_s - started_s > action.limit_s:
            raise GputaxError(
                f"the Job has not ended after {action.limit_s:.0f} s",
                where=_where(action),
                next_step=f"kubectl -n {action.namespace} logs job/{action.job}",
            )
        tools.sleep(POLL_S)


def _node_promised(cluster: ClusterAccess, pod: Manifest, namespace: str) -> bool:
    """Whether the autoscaler is adding a node for this pod; True if we may not read events."""
    fields = {"involvedObject.name": str(pod["metadata"]["name"]), "involvedObject.kind": "Pod"}
    try:
        events = cluster.list("Event", fields=fields, namespace=namespace)
    except GputaxError:
        return True
    return any(event.get("reason") == "TriggeredScaleUp" for event in events)


def _failed(action: AwaitJob, job: JobState, pods: list[Manifest]) -> GputaxError:
    words = end_words(pods[-1]) if pods else ""
    # With these exit codes gputax in the pod has measured: some cells failed or are invalid, the others are kept.
    kinds: dict[int, type[GputaxError]] = {each.exit_code: each for each in (CellError, ResultsError)}
    return kinds.get(exit_code(pods[-1]) if pods else 0, GputaxError)(
        f"the Job failed: {'; '.join(filter(None, (job.reason, words)))}",
        where=_where(action),
        # Kubernetes deletes the pod and its log at the deadline.
        next_step="use a longer --deadline"
        if "DeadlineExceeded" in job.reason
        else f"kubectl -n {action.namespace} logs job/{action.job}",
    )


def _cannot_start(action: AwaitJob, state: PodState, next_step: str) -> GputaxError:
    return GputaxError(f"the pod cannot start: {state.words}", where=_where(action), next_step=next_step)


def _where(action: AwaitJob) -> str:
    return f"Job {action.job}, namespace {action.namespace}"


LOG_NAME = "pod.log"


@dataclass(frozen=True)
class Collected:
    """The collected files."""

    record: Path
    log: Path
    source: str
    cells: int


def collect(
    tools: Tools,
    deployment: Deployment,
    action: CollectResults,
    run_id: str,
    lost_log: tuple[Command, ...],
    job_failed: bool = False,
) -> Collected:
    """Read the log, check its result block, and write both; idempotent."""
    text, source = _log_text(tools, action, run_id, lost_log)
    log = deployment.results / LOG_NAME
    write_text(log, redacted(text))
    # Imported here: the record's schema needs pydantic, which `gputax status` does not.
    from gputax.results.importers.pod_log import read_block

    try:
        record, _ = read_block(text, str(log))
    except ResultsError as error:
        raise ResultsError(
            error.what, where=str(log), next_step=f"{error.next_step or 'read the log'}; the log was saved"
        ) from error
    write_text(record_path(deployment), record.model_dump_json(indent=2) + "\n")
    marker = {"run_id": run_id, "collected_at": now_text(), "from": source, "job_failed": job_failed}
    write_text(deployment.path / "collected.json", json.dumps(marker, indent=2) + "\n")
    return Collected(record_path(deployment), log, source, len(record.benchmarks))


def _log_text(tools: Tools, action: CollectResults, run_id: str, lost_log: tuple[Command, ...]) -> tuple[str, str]:
    pods = pods_of(tools.cluster(), action.namespace, run_id)
    if pods:
        name = str(pods[-1]["metadata"]["name"])
        return tools.cluster().log(name, namespace=action.namespace), f"pod {name}"
    for command in lost_log:
        found = tools.ask(command)
        if found.exit_code == 0 and found.output:
            return found.output + "\n", "the cloud's own log"
    raise GputaxError(
        "the Job's pod no longer exists, so its log is lost",
        where=f"Job {action.job}, namespace {action.namespace}",
        next_step="run it again with gputax deploy --rerun",
    )
