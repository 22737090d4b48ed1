"""The words of a deployment: a step says what it does, what shows that it is done, and what undoes it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Command:
    """One program call, without a shell; `kubeconfig` goes into the environment, never into the arguments."""

    words: tuple[str, ...]
    kubeconfig: str = ""

    def text(self) -> str:
        """Return the command as a user would type it."""
        return shlex.join(self.words)


@dataclass(frozen=True)
class RunCommands:
    """Call programs one after the other."""

    commands: tuple[Command, ...]


@dataclass(frozen=True)
class ApplyObjects:
    """Create or update Kubernetes objects; the same manifests lie in `manifests/FILE` for kubectl."""

    file: str
    objects: tuple[Manifest, ...]


@dataclass(frozen=True)
class AwaitGpus:
    """Install the device plugin where GPU nodes advertise nothing, and wait until one does."""

    plugin: ApplyObjects
    install: bool
    resource: str
    limit_s: float


@dataclass(frozen=True)
class AwaitJob:
    """Wait until the Job has ended; a pod that cannot start ends the wait early."""

    namespace: str
    job: str
    pending_limit_s: float
    limit_s: float
    # How long the scheduler may say no before somebody must have promised a new node.
    unschedulable_s: float


@dataclass(frozen=True)
class CollectResults:
    """Bring the Job's result block and log home."""

    namespace: str
    job: str


Action = RunCommands | ApplyObjects | AwaitGpus | AwaitJob | CollectResults


@dataclass(frozen=True)
class Answer:
    """What a read-only command prints: lines that mean done, under way without us, or on its way out."""

    command: Command
    done: tuple[str, ...]
    under_way: tuple[str, ...] = ()
    going: tuple[str, ...] = ()
    limit_s: float = 900.0


@dataclass(frozen=True)
class FileExists:
    """The step is done when this file is there."""

    path: str


@dataclass(frozen=True)
class ObjectsExist:
    """The step is done when all of its objects are there, with this run's id."""


@dataclass(frozen=True)
class GpusAllocatable:
    """The step is done when some node offers the resource."""

    resource: str


@dataclass(frozen=True)
class JobSucceeded:
    """The step is done when the Job says so."""

    namespace: str
    job: str


@dataclass(frozen=True)
class ResultsAtHome:
    """The step is done when the record of this very run lies in the result directory."""


Check = Answer | FileExists | ObjectsExist | GpusAllocatable | JobSucceeded | ResultsAtHome


@dataclass(frozen=True)
class Step:
    """One line of the check list.

    `check` is None where nothing can be asked: then the recorded state decides. `within` names the step whose undoing
    removes this one too. `rates` are keys of the price lines that run from this step on.
    """

    name: str
    title: str
    action: Action
    check: Check | None
    expected_s: float
    undo: tuple[Command, ...] = ()
    within: str = ""
    rates: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Rate:
    """A price that runs: what, dollars per hour, and how it was reckoned."""

    key: str
    title: str
    usd_per_hour: float
    method: str
    # Runs while a pod needs it and a little longer, then the autoscaler ends it.
    while_busy: bool = False


@dataclass(frozen=True)
class Plan:
    """All that a deployment will do, known before anything is touched."""

    provider: str
    title: str
    steps: tuple[Step, ...]
    rates: tuple[Rate, ...]
    price_note: str
    notes: tuple[str, ...] = ()
    # How long a GPU node stays after its last pod: the cluster autoscaler's default on GKE is 10 minutes.
    linger_s: float = 0.0
    scale_to_zero: tuple[Command, ...] = ()
    lost_log: tuple[Command, ...] = ()
    kubeconfig: str = ""
    context: str = ""
    """The kubeconfig's context, where one was named: every kubectl of the plan says it."""

    def step(self, name: str) -> Step:
        """Return the step of that name."""
        return next(step for step in self.steps if step.name == name)

    def expected_s(self) -> float:
        """Return the sum of the steps' expected times."""
        return sum(step.expected_s for step in self.steps)
