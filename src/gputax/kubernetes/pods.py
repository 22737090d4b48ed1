"""The pods of one run: created on demand, shared by its workers, and deleted however the run ends."""

from __future__ import annotations

import contextlib
import datetime
import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from gputax.errors import GputaxError
from gputax.kubernetes.client import Cluster
from gputax.kubernetes.objects import APP, RUN_LABEL, Manifest, PodPlan, labels, pod
from gputax.kubernetes.watch import Clock, PodWatch, Say, death_words, state_of

GONE_TIMEOUT_S = 30.0
DELETE_GRACE_S = 2


@dataclass(frozen=True)
class ReadyPod:
    """A running pod, in its state when it became ready."""

    name: str
    applied: Manifest
    """The manifest as accepted by the API server."""
    live: Manifest


class RunPods:
    """All pods of a run in one namespace of one cluster, followed by one watch; for several threads."""

    def __init__(self, context: str, namespace: str, say: Say, run_id: str = "", clock: Clock | None = None) -> None:
        self.cluster = Cluster(context, namespace)
        self.run_id = run_id or new_run_id()
        self.clock = clock or Clock()
        self._say = say
        self._making = threading.RLock()
        self._of_plan: dict[str, threading.RLock] = {}
        self._count = 0
        self._watch: PodWatch | None = None
        self._ready: dict[str, ReadyPod] = {}
        self._made: list[str] = []
        self._leaving: list[str] = []
        """Deleted, but perhaps still terminating: the kubelet needs a few seconds to stop a container."""
        self._files: dict[str, str] = {}
        self.after_pods: list[Callable[[], None]] = []
        """What is called by `close` once the pods are gone, for example to delete what they used."""

    def ready(self, plan: PodPlan, timeout_s: float) -> ReadyPod:
        """Return the pod of this plan: the running one, or a new one once it is ready; equal plans get the same pod."""
        with self._alone(plan):
            return self._pod_of(plan, timeout_s)

    def _alone(self, plan: PodPlan) -> threading.RLock:
        with self._making:
            return self._of_plan.setdefault(repr(plan), threading.RLock())

    def _pod_of(self, plan: PodPlan, timeout_s: float) -> ReadyPod:
        key = repr(plan)
        known = self._ready.get(key)
        if known is not None and not self.death(known.name):
            return known
        if known is not None:
            self._say(f"pod {known.name} is gone: {self.death(known.name)}")
            self.remove(known.name)
        made = self._started(replace(plan, name=self._next_name(plan.role), run_id=self.run_id), timeout_s)
        self._ready[key] = made
        return made

    def say(self, words: str) -> None:
        """Tell the user."""
        self._say(words)

    def death(self, name: str) -> str:
        """Return why the pod can no longer run a worker; empty if it can."""
        seen = self._watching().latest(name)
        return death_words(*seen) if seen else "the pod does not exist"

    def death_within(self, name: str, seconds: float) -> str:
        """Like `death`, but wait up to `seconds` for the watch to report it."""
        return self._watching().wait_for(name, lambda event, pod: death_words(event, pod), seconds)

    def current(self, name: str) -> Manifest:
        """Return the pod as last reported by the API server."""
        seen = self._watching().latest(name)
        return seen[1] if seen else {}

    def remove(self, name: str) -> None:
        """Collect its log and delete it."""
        self._keep_log(name)
        was_there = True
        with contextlib.suppress(GputaxError):
            was_there = self.cluster.delete("Pod", name, grace_s=DELETE_GRACE_S)
        if name in self._made:
            self._made.remove(name)
            self._leaving += [name] if was_there else []

    def files(self) -> dict[str, str]:
        """Return the manifests as applied and the logs, keyed by file name in the result directory."""
        return dict(self._files)

    def close(self) -> None:
        """Delete every pod of the run and wait until they are gone; signals are ignored, the time is limited."""
        with uninterrupted():
            for name in list(self._made):
                self.remove(name)
            if self._watch is not None:
                for name in self._leaving:
                    if not self._watch.wait_gone(name, GONE_TIMEOUT_S):
                        self._say(f"pod {name} is still being deleted: {self.cluster.kubectl('get', 'pod', name)}")
                self._watch.close()
            for delete in self.after_pods:
                with contextlib.suppress(GputaxError):
                    delete()
            self.cluster.close()

    def _started(self, plan: PodPlan, timeout_s: float) -> ReadyPod:
        watch = self._watching()
        applied = self._make(plan)
        self._files[f"kubernetes/{plan.name}.yaml"] = as_yaml(applied)
        try:
            live = watch.wait_ready(plan.name, timeout_s, self._say)
        except BaseException:
            self._give_up(plan.name)
            raise
        self._files[f"kubernetes/{plan.name}.yaml"] = as_yaml(live)
        self._say(f"pod {plan.name} is {state_of(live).words}")
        return ReadyPod(plan.name, applied, live)

    def _make(self, plan: PodPlan) -> Manifest:
        self._made.append(plan.name)  # before it exists, so that an interrupt in between does not leave it behind
        size = plan.size.resources()["requests"]
        self._say(f"creating pod {plan.name} in namespace {plan.namespace}: {size['cpu']} CPUs, {size['memory']}")
        return self.cluster.create(pod(plan))

    def _give_up(self, name: str) -> None:
        self.remove(name)

    def _watching(self) -> PodWatch:
        with self._making:
            if self._watch is None:
                self._remove_finished()
                ours = {"app.kubernetes.io/managed-by": APP, RUN_LABEL: self.run_id}
                self._watch = PodWatch(self.cluster, ours, self.clock)
            return self._watch

    def _remove_finished(self) -> None:
        """Delete the pods of earlier runs that were killed: such pods exit by themselves, but are not deleted."""
        ours = {key: value for key, value in labels("", "worker").items() if key != RUN_LABEL}
        for left in self.cluster.list("Pod", labels=ours):
            if (left.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
                name = str(left["metadata"]["name"])
                self._say(f"deleting pod {name}, left by an earlier run")
                with contextlib.suppress(GputaxError):
                    self.cluster.delete("Pod", name)

    def _keep_log(self, name: str) -> None:
        with contextlib.suppress(GputaxError):
            self._files[f"kubernetes/{name}.log"] = self.cluster.log(name)

    def _next_name(self, role: str) -> str:
        with self._making:
            self._count += 1
            return f"{APP}-{role}-{self.run_id}-{self._count}"


def new_run_id() -> str:
    """Return a run id that is valid in labels and object names."""
    stamp = datetime.datetime.now().strftime("%m%d%H%M%S")
    return f"{stamp}-{secrets.token_hex(2)}"


def as_yaml(manifest: Manifest) -> str:
    """Return a manifest as readable YAML, without managedFields."""
    import yaml

    metadata = {key: value for key, value in manifest.get("metadata", {}).items() if key != "managedFields"}
    return str(yaml.safe_dump({**manifest, "metadata": metadata}, sort_keys=False))


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM: a second Ctrl-C during cleanup would leave pods behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Any] = {
        number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
