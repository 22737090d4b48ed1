"""One watch for all pods of a run: the state of each, why it does not start, and why it died."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gputax.errors import GputaxError, PreflightError
from gputax.kubernetes.client import Cluster
from gputax.kubernetes.objects import APP, NAME_LABEL, VGPU_RESOURCE, Manifest

Phase = Literal["waiting", "ready", "stuck", "ended"]
# Reasons that do not resolve by themselves; the kubelet would retry forever.
STUCK = {
    "ErrImageNeverPull": "kubectl describe pod {name}",
    "ErrImagePull": "use --image with an image that the nodes can pull, or import it on the node",
    "ImagePullBackOff": "use --image with an image that the nodes can pull, or import it on the node",
    "InvalidImageName": "use --image with a name such as registry.example/gputax:1.0",
    "CreateContainerConfigError": "kubectl describe pod {name}",
    "CreateContainerError": "kubectl describe pod {name}",
    "RunContainerError": "kubectl describe pod {name}",
    "CrashLoopBackOff": "kubectl logs {name} --previous",
}
# The scheduler retries whenever a node changes; with autoscaling, Unschedulable is the normal first state.
UNSCHEDULABLE_GRACE_S = 20.0
AUTOSCALED = ("TriggeredScaleUp", "cluster-autoscaler")
# How long a container may be creating before we read the events for the reason; an image may be large.
CREATING_GRACE_S = 16.0
# Warnings about a pod that starts all the same; they may be newer than the one that says why it does not.
HARMLESS = ("MissingClusterDNS", "DNSConfigForming")
SANDBOX = ("FailedCreatePodSandBox", "FailedMount", "FailedAttachVolume", "FailedPrepareDynamicResources")
# How long to wait for the watch to report a new pod before asking for it.
UNSEEN_S = 0.5
Say = Callable[[str], None]


@dataclass(frozen=True)
class PodState:
    """A pod's status, reduced to what matters here."""

    phase: Phase
    words: str
    reason: str = ""
    node: str = ""


def state_of(pod: Manifest) -> PodState:
    """Interpret a pod's status; pure."""
    status, node = pod.get("status") or {}, str((pod.get("spec") or {}).get("nodeName") or "")
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    if status.get("phase") in ("Succeeded", "Failed"):
        return PodState("ended", end_words(pod), str(status.get("reason") or ""), node)
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        return PodState("ended", "it is being deleted", "Deleted", node)
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in STUCK:
            words = ": ".join(filter(None, (waiting["reason"], waiting.get("message"))))
            return PodState("stuck", words, waiting["reason"], node)
    if _true(conditions, "Ready"):
        return PodState("ready", f"ready on {node}", node=node)
    scheduled = conditions.get("PodScheduled") or {}
    if scheduled.get("status") == "False":
        words = ": ".join(filter(None, (scheduled.get("reason"), scheduled.get("message"))))
        return PodState("waiting", words, str(scheduled.get("reason") or ""), node)
    if node:
        ready = conditions.get("Ready") or {}
        if status.get("phase") == "Running" and ready.get("status") == "False":
            return PodState("waiting", _not_ready(ready, node), str(ready.get("reason") or ""), node)
        return PodState("waiting", f"on {node}, creating the container", "ContainerCreating", node)
    return PodState("waiting", "waiting for the scheduler")


def end_words(pod: Manifest) -> str:
    """Return why a pod's container ended."""
    status = pod.get("status") or {}
    parts = [str(status[key]) for key in ("reason", "message") if status.get(key)]
    for ended in _ends(pod):
        parts.append(f"{ended.get('reason') or 'ended'}, exit code {ended.get('exitCode')}")
        if ended.get("message"):
            parts.append(str(ended["message"]))
    return "; ".join(dict.fromkeys(parts)) or "it ended"


def exit_code(pod: Manifest) -> int:
    """Return the exit code of a pod's first container; 0 if it has not ended."""
    return next((int(ended.get("exitCode") or 0) for ended in _ends(pod)), 0)


def _ends(pod: Manifest) -> Iterator[Mapping[str, Any]]:
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        state = container.get("state") or {}
        ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated")
        if ended:
            yield ended


def death_words(event: str, pod: Manifest) -> str:
    """Return why a worker in this pod cannot continue; empty if the pod is fine."""
    if event == "DELETED":
        return f"the pod was deleted while it was in use ({end_words(pod)})"
    state = state_of(pod)
    if state.phase == "ended":
        return f"the pod ended: {state.words}"
    if state.phase in ("waiting", "stuck"):
        return f"the pod is no longer ready: {state.words}"
    return ""


def event_words(events: list[Manifest]) -> str:
    """Return the reason and message of the latest warning event that may keep a pod from starting."""
    warnings = [each for each in events if each.get("type") == "Warning" and each.get("reason") not in HARMLESS]
    if not warnings:
        return ""
    last = max(warnings, key=_event_time)
    return f"{last.get('reason')}: {last.get('message')}"


class Clock:
    """The time of everything that waits for a cluster; tests have one that passes without waiting."""

    def now_s(self) -> float:
        """Return seconds since some moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let so much time pass."""
        time.sleep(seconds)

    def wait_for(self, changed: threading.Condition, answer: Callable[[], object], seconds: float) -> None:
        """Wait until `answer` is true, for at most so long; the caller holds `changed`."""
        changed.wait_for(answer, max(0.0, seconds))


class PodWatch:
    """Follows all pods with a run's label in one thread and one request."""

    def __init__(self, cluster: Cluster, labels: Mapping[str, str], clock: Clock | None = None) -> None:
        self._cluster = cluster
        self._labels = dict(labels)
        self._clock = clock or Clock()
        self._changed = threading.Condition()
        self._changes = 0
        self._pods: dict[str, tuple[str, Manifest]] = {}
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._follow, name="pod-watch", daemon=True)
        self._closed = False
        self._thread.start()

    def latest(self, name: str) -> tuple[str, Manifest] | None:
        """Return a pod's last event and its state at that time; None before the first event."""
        with self._changed:
            return self._pods.get(name)

    def wait_ready(self, name: str, timeout_s: float, say: Say) -> Manifest:
        """Wait until the pod is ready; raise with the cluster's reason if it never will be."""
        started = self._clock.now_s()
        said, looked_at = "", ""
        while True:
            event, pod = self._wait_for_change(name, said, started + timeout_s)
            if event == "DELETED":
                raise self._failed(name, "the pod was deleted before it was ready", "run it again")
            state = state_of(pod) if pod else PodState("waiting", "waiting for the API server")
            if state.phase == "ready":
                return pod
            if state.phase in ("stuck", "ended"):
                raise self._never(name, state)
            waited_s = self._clock.now_s() - started
            if state.words != said:
                say(f"pod {name}: {state.words}")
                said = state.words
            if state.reason == "Unschedulable" and waited_s > UNSCHEDULABLE_GRACE_S and looked_at != state.words:
                looked_at = state.words
                if not any(str(each.get("reason")) in AUTOSCALED for each in self._events(name)):
                    raise self._never(name, state)
                say(f"pod {name}: the cluster is adding a node")
            if state.reason == "ContainerCreating" and waited_s > CREATING_GRACE_S:
                events = [each for each in self._events(name) if each.get("reason") in SANDBOX]
                if event_words(events):
                    raise self._never(name, PodState("stuck", event_words(events), str(events[-1].get("reason"))))
            if waited_s > timeout_s:
                words = event_words(self._events(name)) or state.words
                raise self._failed(
                    name,
                    f"the pod was not ready after {timeout_s:g} s: {words}",
                    "raise --ready-timeout if it only needs more time; otherwise gputax doctor --env k8s",
                )

    def wait_gone(self, name: str, timeout_s: float) -> bool:
        """Wait until the pod no longer exists; return False on timeout."""
        deadline = self._clock.now_s() + timeout_s
        while True:
            with self._changed:
                seen = self._pods.get(name)
                if seen is not None and seen[0] == "DELETED":
                    return True
                left_s = deadline - self._clock.now_s()
                if left_s <= 0 or self._failure is not None:
                    return False
                self._wait(left_s if seen else min(left_s, UNSEEN_S))
                unseen = name not in self._pods
            # If it was deleted before the watch saw it, the watch never reports it.
            if unseen and self._forgotten(name):
                return True

    def wait_for(self, name: str, question: Callable[[str, Manifest], str], seconds: float) -> str:
        """Wait until `question` has an answer about the pod, for at most `seconds`; return the answer."""
        deadline = self._clock.now_s() + seconds
        with self._changed:
            while True:
                seen = self._pods.get(name)
                words = question(*seen) if seen else ""
                left_s = deadline - self._clock.now_s()
                if words or left_s <= 0 or self._failure is not None:
                    return words
                self._wait(left_s)

    def close(self) -> None:
        """Stop following; the thread ends with the client's connections."""
        self._closed = True

    def _wait_for_change(self, name: str, said: str, deadline: float) -> tuple[str, Manifest]:
        """Wait for the pod's next event, but at most a second, so that grace periods and deadlines are checked."""
        with self._changed:
            seen = self._pods.get(name)
            if seen is None or (state_of(seen[1]).words == said and seen[0] != "DELETED"):
                self._wait(min(1.0, max(0.05, deadline - self._clock.now_s())))
            if self._failure is not None:
                raise self._failure
            return self._pods.get(name) or ("", {})

    def _wait(self, seconds: float) -> None:
        """Wait for any news; the caller holds the condition."""
        before = self._changes
        self._clock.wait_for(self._changed, lambda: self._changes > before, seconds)

    def _follow(self) -> None:
        try:
            for event, pod in self._cluster.watch("Pod", labels=self._labels):
                with self._changed:
                    self._pods[str(pod["metadata"]["name"])] = (event, pod)
                    self._changes += 1
                    self._changed.notify_all()
                if self._closed:
                    return
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changes += 1
                self._changed.notify_all()

    def _forgotten(self, name: str) -> bool:
        try:
            return self._cluster.get("Pod", name) is None
        except GputaxError:
            return False

    def _events(self, name: str) -> list[Manifest]:
        fields = {"involvedObject.name": name, "involvedObject.kind": "Pod"}
        try:
            return sorted(self._cluster.list("Event", fields=fields), key=_event_time)
        except GputaxError:
            return []  # without the permission, use only the status

    def _never(self, name: str, state: PodState) -> PreflightError:
        if state.reason == "Unschedulable":
            return self._failed(name, f"the pod cannot be scheduled: {state.words}", unschedulable_step(state.words))
        if state.reason == "FailedCreatePodSandBox" and "runtime" in state.words and "handler" in state.words:
            step = "the node's container runtime has no such handler: configure it there, or use another node"
            return self._failed(name, f"the pod cannot start: {state.words}", step)
        words = event_words(self._events(name)) if state.phase == "stuck" and len(state.words) < 40 else ""
        step = STUCK.get(state.reason, "kubectl describe pod {name}").format(name=name)
        if step.startswith("kubectl "):
            step = self._cluster.kubectl(*step.split()[1:])
        how = "the pod ended before it was ready" if state.phase == "ended" else "the pod cannot start"
        return self._failed(name, f"{how}: {words or state.words}", step)

    def _failed(self, name: str, what: str, step: str) -> PreflightError:
        return PreflightError(what, where=f"pod {name}, namespace {self._cluster.namespace}", next_step=step)


def unschedulable_step(words: str) -> str:
    """Return the next step for the scheduler's reason."""
    if "Insufficient nvidia.com" in words:
        return "request fewer with --gpus, or list the nodes' GPUs: gputax doctor --env k8s"
    if f"Insufficient {VGPU_RESOURCE}" in words:
        return (
            "no node has a free place behind a GPU proxy: install one with kubectl apply -k kubernetes/proxy/gpu "
            "(or kubernetes/proxy/software), or wait for a tenant to end; gputax doctor --env k8s+proxy"
        )
    if "Insufficient cpu" in words or "Insufficient memory" in words:
        return (
            "request less with --cpus or --memory (and --threads on the other side of a comparison); "
            f"to list gputax pods: kubectl get pods -A -l {NAME_LABEL}={APP}"
        )
    if "untolerated taint" in words:
        return "kubectl taint nodes NAME KEY- removes a taint; gputax doctor --env k8s lists them"
    if "node affinity" in words or "node selector" in words:
        return "label the node (kubectl label node NAME KEY=VALUE), or drop --node"
    return "gputax doctor --env k8s"


def _not_ready(ready: Mapping[str, Any], node: str) -> str:
    words = ": ".join(filter(None, (ready.get("reason"), ready.get("message"))))
    return f"not ready on {node}" + (f" ({words})" if words else "")


def _true(conditions: Mapping[str, Any], name: str) -> bool:
    return (conditions.get(name) or {}).get("status") == "True"


def _event_time(event: Manifest) -> str:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return str(next((each for each in times if each), ""))
