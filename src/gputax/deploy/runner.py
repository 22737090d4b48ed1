"""Execute a plan: skip finished steps, record each change, and stop so that the deployment can be resumed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from gputax.deploy.gpu_nodes import allocatable, await_gpus
from gputax.deploy.job import await_job, collect, job_state
from gputax.deploy.node_labels import label, labelled
from gputax.deploy.plan import (
    Answer,
    ApplyObjects,
    AwaitGpus,
    AwaitJob,
    CollectResults,
    FileExists,
    GpusAllocatable,
    JobSucceeded,
    LabelNodes,
    Manifest,
    NodesLabelled,
    ObjectsExist,
    Plan,
    RunCommands,
    Step,
)
from gputax.deploy.state import Deployment, StepRecord, is_collected, now_text
from gputax.deploy.tools import ABSENT, Tools, trouble_in, useful_line
from gputax.errors import CellError, GputaxError, Interrupted, PreflightError, ResultsError
from gputax.kubernetes.client import ForbiddenError

Presence = Literal["done", "absent", "under way", "going"]
POLL_S = 10.0
NAMESPACE_GONE_S = 180.0
Say = Callable[[str], None]


class Runner:
    """Executes the steps of one deployment, in order."""

    def __init__(self, plan: Plan, deployment: Deployment, tools: Tools, say: Say) -> None:
        self._plan = plan
        self._deployment = deployment
        self._tools = tools
        self._say = say
        self._run_id = deployment.state.run_id

    def execute(self) -> None:
        """Execute the remaining steps; raise at the first one that fails."""
        total = len(self._plan.steps)
        for number, step in enumerate(self._plan.steps, 1):
            self._say(f"[{number}/{total}] {step.title}")
            self._guarded(step, f"step {number} of {total}, {step.title}")

    def presence(self, step: Step) -> Presence:
        """Check whether the step is done, by its result and not by the recorded state."""
        check = step.check
        if check is None:
            return "done" if self._deployment.state.record(step.name).state == "done" else "absent"
        if isinstance(check, Answer):
            return self._answer(check)
        if isinstance(check, FileExists):
            return _seen(Path(check.path).is_file())
        if isinstance(check, GpusAllocatable):
            return _seen(allocatable(self._tools.cluster().list("Node"), check.resource) > 0)
        if isinstance(check, NodesLabelled):
            assert isinstance(step.action, LabelNodes)
            return _seen(labelled(self._tools, step.action))
        if isinstance(check, JobSucceeded):
            job = job_state(self._tools.cluster().get("Job", check.job, namespace=check.namespace))
            return _seen(job.phase == "complete" and job.run_id == self._run_id)
        if isinstance(check, ObjectsExist):
            assert isinstance(step.action, ApplyObjects)
            found = {self._object(manifest) for manifest in step.action.objects}
            return next((each for each in ("going", "absent") if each in found), "done")
        return _seen(is_collected(self._deployment, self._run_id))

    def _answer(self, check: Answer) -> Presence:
        finished = self._tools.ask(check.command)
        lines = finished.output.split()
        if finished.exit_code != 0:
            if ABSENT.search(finished.output):
                return "absent"
            raise self._command_error(check.command.text(), finished.output)
        if set(check.done) <= set(lines):
            return "done"
        if set(check.under_way) & set(lines):
            return "under way"
        return "going" if set(check.going) & set(lines) else "absent"

    def _object(self, manifest: Manifest) -> Literal["done", "absent", "going"]:
        kind, name, namespace = identity(manifest)
        try:
            found = self._tools.cluster().get(kind, name, namespace=namespace)
        except ForbiddenError:
            # A user with the minimal role may not read namespaces; creating the Job will show whether it exists.
            return "done" if kind == "Namespace" else "absent"
        if found is None:
            return "absent"
        if kind == "Namespace" and found["metadata"].get("deletionTimestamp"):
            return "going"
        job = job_state(found) if kind == "Job" else None
        usable = job is None or (job.run_id == self._run_id and job.phase != "failed")
        return "done" if usable else "absent"

    def _guarded(self, step: Step, where: str) -> None:
        try:
            self._one(step)
        except (KeyboardInterrupt, Interrupted):
            self._mark(step, "interrupted", error={"what": "interrupted"})
            self._deployment.event("step-interrupted", step=step.name)
            raise Interrupted(
                f"interrupted in {where}",
                where=str(self._deployment.path),
                next_step="run the same command to resume; gputax destroy removes what was created",
            ) from None
        except GputaxError as error:
            self._failed(step, error)
            resume = "then run the same command to resume"
            error.what = f"{where}: {error.what}"
            error.where = error.where or str(self._deployment.log_path)
            error.next_step = f"{error.next_step}; {resume}" if error.next_step else f"{resume} (see {error.where})"
            raise

    def _failed(self, step: Step, error: GputaxError) -> None:
        left_behind = True
        if isinstance(step.check, Answer):
            try:
                left_behind = self.presence(step) != "absent"
            except GputaxError:
                left_behind = True  # unknown: better to count its cost than to miss it
        self._mark(step, "failed", error=error.to_dict())
        self._deployment.event("step-failed", step=step.name, what=error.what, left_behind=left_behind)
        self._deployment.log(f"{step.name}: FAILED: {error.what}")

    def _one(self, step: Step) -> None:
        before = self._deployment.state.record(step.name)
        presence = self.presence(step)
        if presence == "done":
            if before.state != "done":
                self._done(step, "applied" if before.ours else "found")
            self._say("    already done" if before.ours else "    already exists")
            return
        self._begin(step, presence)
        if presence == "under way":
            self._say("    already being created")
        elif presence == "going":
            self._say("    waiting until the old one is deleted")
            self._await_gone(step)
            self._apply(step)
        else:
            self._apply(step)
        if isinstance(step.check, Answer):
            self._await(step, ("done",))
        self._done(step, "applied")

    def _apply(self, step: Step) -> None:
        action = step.action
        if isinstance(action, RunCommands):
            for command in action.commands:
                self._log_line(f"$ {command.text()}")
                finished = self._tools.call(command, self._deployment.log)
                if finished.exit_code != 0:
                    raise self._command_error(command.text(), finished.output)
        elif isinstance(action, ApplyObjects):
            for manifest in action.objects:
                self._apply_object(manifest)
        elif isinstance(action, AwaitGpus):
            await_gpus(self._tools, action, self._log_line, self._apply_object)
        elif isinstance(action, LabelNodes):
            label(self._tools, action, self._log_line)
        elif isinstance(action, AwaitJob):
            self._await_job(action)
        elif isinstance(action, CollectResults):
            found = collect(self._tools, self._deployment, action, self._run_id, self._plan.lost_log)
            self._log_line(f"{found.cells} results from {found.source} -> {found.record}")

    def _apply_object(self, manifest: Manifest) -> None:
        kind, name, namespace = identity(manifest)
        cluster = self._tools.cluster()
        old = cluster.get(kind, name, namespace=namespace) if kind == "Job" else None
        if old is not None:
            self._refuse_foreign(old, name, namespace)
            # A Job's template is immutable: delete our Job if it failed or is from an earlier run.
            self._log_line(f"replacing the old Job {name}")
            cluster.delete(kind, name, namespace=namespace)
            for _ in range(60):
                if cluster.get(kind, name, namespace=namespace) is None:
                    break
                self._tools.sleep(1.0)
        self._log_line(f"applying {kind} {name}")
        cluster.apply(manifest)

    def _refuse_foreign(self, job: Manifest, name: str, namespace: str) -> None:
        run_id = job_state(job).run_id
        if not self._deployment.state.made(run_id):
            raise PreflightError(
                f"another deployment has a Job with this name (run {run_id})"
                if run_id
                else "a Job with this name exists that was not created by gputax",
                where=f"Job {name}, namespace {namespace}",
                next_step="use another --out or --namespace; if it is not needed: "
                f"kubectl -n {namespace} delete job {name}",
            )

    def _await_job(self, action: AwaitJob) -> None:
        try:
            await_job(self._tools, action, self._run_id, self._log_line)
        except (CellError, ResultsError) as error:
            self._keep_what_was_measured(error)
            raise
        finally:
            ended = job_state(self._tools.cluster().get("Job", action.job, namespace=action.namespace))
            if ended.phase in ("complete", "failed"):
                self._deployment.event("job-ended", phase=ended.phase, reason=ended.reason)

    def _keep_what_was_measured(self, error: GputaxError) -> None:
        """Collect the results of a failed Job; the same command still measures again and replaces them."""
        action = self._plan.steps[-1].action
        assert isinstance(action, CollectResults)
        try:
            found = collect(self._tools, self._deployment, action, self._run_id, self._plan.lost_log, job_failed=True)
        except GputaxError as lost:
            self._log_line(f"no results to collect: {lost.what}")
            return
        error.what += f"; its results were collected: {found.record}"
        error.next_step = f"gputax report {self._deployment.results} shows what is invalid, and why"

    def _await_gone(self, step: Step) -> None:
        if not isinstance(step.action, ApplyObjects):
            self._await(step, ("absent",))
            return
        for manifest in step.action.objects:
            if manifest["kind"] == "Namespace":
                await_namespace_gone(self._tools, identity(manifest)[1])

    def _await(self, step: Step, wanted: tuple[Presence, ...]) -> None:
        assert isinstance(step.check, Answer)
        deadline_s = self._tools.seconds() + step.check.limit_s
        while (found := self.presence(step)) not in wanted:
            if found == "absent" and "done" in wanted:
                raise GputaxError("it was created, but its check does not find it", next_step=step.check.command.text())
            if self._tools.seconds() > deadline_s:
                raise GputaxError(f"not ready after {step.check.limit_s:.0f} s", next_step=step.check.command.text())
            self._tools.sleep(POLL_S)

    def _begin(self, step: Step, presence: Presence) -> None:
        old = self._deployment.state.record(step.name)
        # A resource whose creation was started by others is not ours.
        ours = old.ours or presence != "under way"
        record = StepRecord("running", now_text(), "", ours)
        self._deployment.save(self._deployment.state.with_record(step.name, record))
        self._deployment.event("step-begun", step=step.name)

    def _done(self, step: Step, how: str) -> None:
        old = self._deployment.state.record(step.name)
        record = replace(old, state="done", ended_at=now_text(), how=how, error=None)
        self._deployment.save(self._deployment.state.with_record(step.name, record))
        self._deployment.event("step-done", step=step.name, how=how)

    def _mark(self, step: Step, state: str, error: dict[str, object]) -> None:
        old = self._deployment.state.record(step.name)
        record = replace(old, state=state, ended_at=now_text(), error=json.loads(json.dumps(error)))
        self._deployment.save(self._deployment.state.with_record(step.name, record))

    def _log_line(self, text: str) -> None:
        self._deployment.log(text)
        self._say(f"    {text}")

    def _command_error(self, command: str, output: str) -> GputaxError:
        trouble = trouble_in(output)
        words = useful_line(output)
        fill = self._deployment.state.choices.get(self._plan.provider) or {}
        zone = str(fill.get("zone", "ZONE"))
        if trouble is None:
            return GputaxError(f"`{command.split(' --')[0]}` failed: {words}", where=str(self._deployment.log_path))
        next_step = trouble.next_step
        for key, value in {"project": fill.get("project", ""), "zone": zone, "region": zone.rsplit("-", 1)[0]}.items():
            next_step = next_step.replace("{" + key + "}", str(value))
        return GputaxError(f"{trouble.what}: {words}", where=str(self._deployment.log_path), next_step=next_step)


def await_namespace_gone(tools: Tools, name: str) -> None:
    """Wait until a namespace is deleted: until then its pods may run, and nothing can be created there."""
    deadline_s = tools.seconds() + NAMESPACE_GONE_S
    while tools.cluster().get("Namespace", name) is not None:
        if tools.seconds() > deadline_s:
            raise GputaxError(
                f"Namespace {name} is still being deleted after {NAMESPACE_GONE_S:.0f} s",
                next_step=f"kubectl get namespace {name} -o yaml shows what it is waiting for",
            )
        tools.sleep(1.0)


def identity(manifest: Manifest) -> tuple[str, str, str]:
    """Return an object's kind, name and namespace."""
    metadata = manifest["metadata"]
    return str(manifest["kind"]), str(metadata["name"]), str(metadata.get("namespace") or "")


def _seen(there: bool) -> Presence:
    return "done" if there else "absent"
