"""Delete a deployment: in reverse order, only what it created, even if part of it is already gone."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gputax.deploy.job import collect, job_state
from gputax.deploy.node_labels import unlabel
from gputax.deploy.plan import (
    Answer,
    ApplyObjects,
    AwaitGpus,
    AwaitJob,
    CollectResults,
    Command,
    FileExists,
    LabelNodes,
    Manifest,
    Plan,
    Step,
)
from gputax.deploy.runner import Runner, await_namespace_gone, identity
from gputax.deploy.state import Deployment, is_collected, now_text
from gputax.deploy.tools import ABSENT, Tools, useful_line
from gputax.errors import GputaxError, Interrupted
from gputax.kubernetes.client import ForbiddenError
from gputax.kubernetes.objects import APP, NAME_LABEL, RUN_LABEL

POLL_S = 10.0
IN_A_NAMESPACE = (
    "Pod",
    "Job",
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "ConfigMap",
    "Service",
    "PersistentVolumeClaim",
)
OF_EVERY_NAMESPACE = ("kube-root-ca.crt",)
STATE_WORDS = {"under way": "being created", "going": "being deleted"}
Say = Callable[[str], None]


class Teardown:
    """Undoes the steps of one deployment."""

    def __init__(self, plan: Plan, deployment: Deployment, tools: Tools, say: Say) -> None:
        self._plan = plan
        self._deployment = deployment
        self._tools = tools
        self._say = say
        self._runner = Runner(plan, deployment, tools, say)

    def destroy(self) -> None:
        """Undo every step of ours; continue after a failure, because the next resource may be the expensive one."""
        failures: list[GputaxError] = []
        self._deployment.event("destroy-begun")
        for step in reversed(self._plan.steps):
            try:
                self._one(step)
            except KeyboardInterrupt:
                self._deployment.event("destroy-interrupted", step=step.name)
                raise Interrupted(
                    f"interrupted while removing: {step.title}",
                    where=str(self._deployment.path),
                    next_step=f"gputax destroy --out {self._deployment.results}; "
                    "until then the remaining resources cost money",
                ) from None
            except GputaxError as error:
                failures.append(error)
                self._deployment.event("undo-failed", step=step.name, what=error.what)
                self._tell(f"FAILED: {error.what}")
        if failures:
            first = failures[0]
            raise GputaxError(
                f"{len(failures)} resources could not be removed: {first.what}",
                where=first.where or str(self._deployment.log_path),
                next_step=f"{first.next_step + '; ' if first.next_step else ''}"
                f"then gputax destroy --out {self._deployment.results}",
            )
        self._deployment.save(replace(self._deployment.state, destroyed_at=now_text()))
        self._deployment.event("destroyed")

    def scale_to_zero(self) -> None:
        """Remove the Job and the GPU nodes; the cluster remains, at a lower price."""
        for step in self._plan.steps:
            if isinstance(step.action, ApplyObjects) and any(each["kind"] == "Job" for each in step.action.objects):
                self._delete_objects(step.action)
        for command in self._plan.scale_to_zero:
            self._call(command)
        self._deployment.event("scaled-to-zero")

    def rescue(self) -> None:
        """Collect results that were not collected yet, if possible."""
        state = self._deployment.state
        action = self._plan.steps[-1].action
        if not isinstance(action, CollectResults) or is_collected(self._deployment, state.run_id):
            return
        if not state.record("job").ours or state.record("job").state == "undone":
            return
        try:
            found = collect(self._tools, self._deployment, action, state.run_id, self._plan.lost_log)
            self._tell(f"collected results: {found.cells} from {found.source} -> {found.record}")
        except GputaxError as error:
            self._tell(f"no results to collect: {error.what}")

    def idle_s(self, now: datetime.datetime) -> float:
        """Return the seconds since the last activity; 0 while the Job runs."""
        times = [datetime.datetime.fromisoformat(str(event["at"])) for event in self._deployment.events()[-1:]]
        for step in self._plan.steps:
            if isinstance(step.action, AwaitJob) and self._deployment.state.record("job").state == "done":
                try:
                    job = self._tools.cluster().get("Job", step.action.job, namespace=step.action.namespace)
                except GputaxError:
                    continue  # a cluster that does not answer has no Job to wait for
                if job_state(job).phase == "active":
                    return 0.0
                ended = ((job or {}).get("status") or {}).get("completionTime")
                if ended:
                    times.append(_time(ended))
        return (now - max(times)).total_seconds() if times else 0.0

    def _one(self, step: Step) -> None:
        record = self._deployment.state.record(step.name)
        if record.state in ("to do", "undone") or isinstance(step.action, AwaitJob | CollectResults):
            return
        if isinstance(step.check, FileExists):
            Path(step.check.path).unlink(missing_ok=True)
        if not record.ours:
            self._tell(f"keeping {step.title}: it existed before")
            return
        parent = self._deployment.state.record(step.within) if step.within else None
        if parent is not None and parent.ours and parent.state != "undone":
            self._tell(f"{step.title}: removed with the {step.within}")
            return
        if isinstance(step.action, ApplyObjects):
            self._delete_objects(step.action)
        elif isinstance(step.action, AwaitGpus):
            self._delete_objects(step.action.plugin)
        elif isinstance(step.action, LabelNodes):
            unlabel(self._tools, step.action, self._tell)
        elif step.undo:
            self._undo_commands(step)
        self._undone(step)

    def _undo_commands(self, step: Step) -> None:
        if isinstance(step.check, Answer):
            presence = self._settled(step)
            if presence == "absent":
                self._tell(f"{step.title}: already removed")
                return
        for command in step.undo:
            self._call(command)
        # Check with the cloud instead of trusting the tool: a cluster that still exists keeps costing money.
        if isinstance(step.check, Answer) and self._settled(step) != "absent":
            raise GputaxError(f"{step.title}: still exists after its removal", next_step=step.check.command.text())

    def _settled(self, step: Step) -> str:
        """Wait until the cloud has finished creating or deleting: it cannot delete a resource that is being created."""
        assert isinstance(step.check, Answer)
        deadline_s = self._tools.seconds() + step.check.limit_s
        while (presence := self._runner.presence(step)) in ("under way", "going"):
            if self._tools.seconds() > deadline_s:
                limit_s = step.check.limit_s
                raise GputaxError(
                    f"still {STATE_WORDS[presence]} after {limit_s:.0f} s", next_step=step.check.command.text()
                )
            self._tell(f"{step.title}: {STATE_WORDS[presence]}, waiting")
            self._tools.sleep(POLL_S)
        return presence

    def _call(self, command: Command) -> None:
        self._tell(f"$ {command.text()}")
        finished = self._tools.call(command, self._deployment.log)
        if finished.exit_code != 0 and not ABSENT.search(finished.output):
            raise GputaxError(
                f"`{command.text().split(' --')[0]}` failed: {useful_line(finished.output)}",
                where=str(self._deployment.log_path),
                next_step=command.text(),
            )

    def _delete_objects(self, action: ApplyObjects) -> None:
        cluster = self._tools.cluster()
        for manifest in reversed(action.objects):
            kind, name, namespace = identity(manifest)
            if not self._may_delete(manifest):
                continue
            was_there = cluster.delete(kind, name, namespace=namespace)
            if was_there and kind == "Namespace":
                await_namespace_gone(self._tools, name)
            self._tell(f"{kind} {name}: {'removed' if was_there else 'already removed'}")

    def _may_delete(self, manifest: Manifest) -> bool:
        kind, name, namespace = identity(manifest)
        found = self._tools.cluster().get(kind, name, namespace=namespace)
        if found is None:
            return True
        labels = found["metadata"].get("labels") or {}
        if kind == "Job" and not self._is_ours(kind, labels):
            self._tell(f"keeping Job {name}: another deployment created it")
            return False
        if kind == "Namespace":
            others = self._foreign_objects(name)
            if others:
                more = f" and {len(others) - 3} more" if len(others) > 3 else ""
                self._tell(f"keeping Namespace {name}: it contains {', '.join(others[:3])}{more}, created by others")
                return False
        return kind != "DaemonSet" or labels.get("app.kubernetes.io/managed-by") == "gputax"

    def _foreign_objects(self, namespace: str) -> list[str]:
        """Return the objects of others in a namespace, by kind and name; secrets are not listed."""
        found = []
        for kind in IN_A_NAMESPACE:
            with contextlib.suppress(ForbiddenError):
                for each in self._tools.cluster().list(kind, namespace=namespace):
                    name, labels = str(each["metadata"]["name"]), each["metadata"].get("labels") or {}
                    if name not in OF_EVERY_NAMESPACE and not self._is_ours(kind, labels):
                        found.append(f"{kind} {name}")
        return found

    def _is_ours(self, kind: str, labels: Mapping[str, Any]) -> bool:
        """Whether an object is ours; pods and Jobs of gputax only by their run id, since others may be running some."""
        if kind in ("Pod", "Job"):
            return self._deployment.state.made(str(labels.get(RUN_LABEL)))
        return labels.get(NAME_LABEL) == APP

    def _undone(self, step: Step) -> None:
        for each in self._plan.steps:
            if each.name == step.name or (each.within == step.name and not isinstance(each.action, AwaitJob)):
                record = replace(self._deployment.state.record(each.name), state="undone", ended_at=now_text())
                self._deployment.save(self._deployment.state.with_record(each.name, record))
        self._deployment.event("undone", step=step.name)
        if step.note:
            self._tell(f"{step.title}: {step.note}")

    def _tell(self, text: str) -> None:
        self._deployment.log(text)
        self._say(text)


def _time(text: object) -> datetime.datetime:
    if isinstance(text, datetime.datetime):
        return text
    return datetime.datetime.fromisoformat(str(text).replace("Z", "+00:00"))
