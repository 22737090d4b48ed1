"""The pods of one run: made when they are needed, shared by its workers, and removed with it however it ends."""

from __future__ import annotations

import contextlib
import datetime
import secrets
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gputax.errors import GputaxError
from gputax.kubernetes.client import Cluster
from gputax.kubernetes.objects import APP, RUN_LABEL, Manifest, PodPlan, labels, pod
from gputax.kubernetes.watch import PodWatch, Say, death_words, state_of

GONE_TIMEOUT_S = 30.0
DELETE_GRACE_S = 2


@dataclass(frozen=True)
class ReadyPod:
    """A pod that runs, as it was when it became ready."""

    name: str
    applied: Manifest
    """The manifest as the API server took it."""
    live: Manifest


class RunPods:
    """All pods of a run in one namespace of one cluster, behind one watch."""

    def __init__(self, context: str, namespace: str, say: Say, run_id: str = "") -> None:
        self.cluster = Cluster(context, namespace)
        self.run_id = run_id or new_run_id()
        self._say = say
        self._watch: PodWatch | None = None
        self._ready: dict[str, ReadyPod] = {}
        self._made: list[str] = []
        self._leaving: list[str] = []
        """Told to go, but perhaps not gone yet: a kubelet needs its seconds to end a container."""
        self._files: dict[str, str] = {}

    def ready(self, plan: PodPlan, timeout_s: float) -> ReadyPod:
        """Return the pod of this plan: the one that runs already, or a new one once it is ready."""
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

    def death(self, name: str) -> str:
        """Say why the pod cannot carry a worker any more; empty where it can."""
        seen = self._watching().latest(name)
        return death_words(*seen) if seen else "the API server knows no such pod"

    def death_within(self, name: str, seconds: float) -> str:
        """The same, but give the news of a death so long to arrive."""
        return self._watching().wait_for(name, lambda event, pod: death_words(event, pod), seconds)

    def current(self, name: str) -> Manifest:
        """Return the pod as the API server last told."""
        seen = self._watching().latest(name)
        return seen[1] if seen else {}

    def remove(self, name: str) -> None:
        """Bring its log home and delete it."""
        self._keep_log(name)
        was_there = True
        with contextlib.suppress(GputaxError):
            was_there = self.cluster.delete("Pod", name, grace_s=DELETE_GRACE_S)
        if name in self._made:
            self._made.remove(name)
            self._leaving += [name] if was_there else []

    def files(self) -> dict[str, str]:
        """Return what came home: manifests as applied and logs, by their names in the result directory."""
        return dict(self._files)

    def close(self) -> None:
        """Delete every pod of the run and wait until they are gone; nothing can interrupt this, but it is bounded."""
        with uninterrupted():
            for name in list(self._made):
                self.remove(name)
            if self._watch is not None:
                for name in self._leaving:
                    if not self._watch.wait_gone(name, GONE_TIMEOUT_S):
                        self._say(f"pod {name} is still being deleted: {self.cluster.kubectl('get', 'pod', name)}")
                self._watch.close()
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
        self._made.append(plan.name)  # before it exists: an interrupt between both must not leave it behind
        size = plan.size.resources()["requests"]
        self._say(f"making pod {plan.name} in namespace {plan.namespace}: {size['cpu']} CPUs, {size['memory']}")
        return self.cluster.create(pod(plan))

    def _give_up(self, name: str) -> None:
        self.remove(name)

    def _watching(self) -> PodWatch:
        if self._watch is None:
            self._remove_finished()
            self._watch = PodWatch(self.cluster, {"app.kubernetes.io/managed-by": APP, RUN_LABEL: self.run_id})
        return self._watch

    def _remove_finished(self) -> None:
        """Remove pods of earlier runs that were killed: their holder ended them, but only a client can delete them."""
        ours = {key: value for key, value in labels("", "worker").items() if key != RUN_LABEL}
        for left in self.cluster.list("Pod", labels=ours):
            if (left.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
                name = str(left["metadata"]["name"])
                self._say(f"removing pod {name}, left by an earlier run")
                with contextlib.suppress(GputaxError):
                    self.cluster.delete("Pod", name)

    def _keep_log(self, name: str) -> None:
        with contextlib.suppress(GputaxError):
            self._files[f"kubernetes/{name}.log"] = self.cluster.log(name)

    def _next_name(self, role: str) -> str:
        return f"{APP}-{role}-{self.run_id}-{len(self._files) + len(self._made)}"


def new_run_id() -> str:
    """Return a name for a run that is valid in labels and object names."""
    stamp = datetime.datetime.now().strftime("%m%d%H%M%S")
    return f"{stamp}-{secrets.token_hex(2)}"


def as_yaml(manifest: Manifest) -> str:
    """Return a manifest for people: without the bookkeeping of who set which field."""
    import yaml

    metadata = {key: value for key, value in manifest.get("metadata", {}).items() if key != "managedFields"}
    return str(yaml.safe_dump({**manifest, "metadata": metadata}, sort_keys=False))


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM: a second Ctrl-C in the middle of the cleaning would leave pods behind."""
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
