"""The data of a deployment plan: steps with an action, a check and an undo, and the last steps of every plan."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any

from gputax.kubernetes.objects import (
    GPU_RESOURCE,
    XEN_NODE_LABEL,
    XEN_RUNTIME_CLASS,
    PodPlan,
    Size,
    job,
    namespace,
    runtime_class,
    suite_words,
)
from gputax.plan.environment import K8S, XEN

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
    """Run programs one after the other."""

    commands: tuple[Command, ...]


@dataclass(frozen=True)
class ApplyObjects:
    """Create or update Kubernetes objects; the same manifests are in `manifests/FILE` for kubectl."""

    file: str
    objects: tuple[Manifest, ...]


@dataclass(frozen=True)
class AwaitGpus:
    """Install the device plugin if GPU nodes do not advertise GPUs, and wait until one does."""

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
    # How long a pod may be unschedulable before the autoscaler must have announced a new node.
    unschedulable_s: float


@dataclass(frozen=True)
class CollectResults:
    """Collect the Job's result block and log."""

    namespace: str
    job: str


LABELLED = "true"


@dataclass(frozen=True)
class LabelNodes:
    """Label nodes of the cluster; with no names, some node must have the label already."""

    nodes: tuple[str, ...]
    label: str


Action = RunCommands | ApplyObjects | AwaitGpus | AwaitJob | CollectResults | LabelNodes


@dataclass(frozen=True)
class Answer:
    """A read-only command, and the lines that mean done, being created, or being deleted."""

    command: Command
    done: tuple[str, ...]
    under_way: tuple[str, ...] = ()
    going: tuple[str, ...] = ()
    limit_s: float = 900.0


@dataclass(frozen=True)
class FileExists:
    """The step is done when this file exists."""

    path: str


@dataclass(frozen=True)
class ObjectsExist:
    """The step is done when all of its objects exist, with this run's id."""


@dataclass(frozen=True)
class GpusAllocatable:
    """The step is done when some node offers the resource."""

    resource: str


@dataclass(frozen=True)
class NodesLabelled:
    """The step is done when its nodes have the label; with no names, when some node has it."""


@dataclass(frozen=True)
class JobSucceeded:
    """The step is done when the Job is complete."""

    namespace: str
    job: str


@dataclass(frozen=True)
class ResultsCollected:
    """The step is done when the record of this run is in the result directory."""


Check = Answer | FileExists | ObjectsExist | GpusAllocatable | NodesLabelled | JobSucceeded | ResultsCollected


@dataclass(frozen=True)
class Step:
    """One line of the check list.

    `check` is None if there is nothing to query; then the recorded state decides. `within` names the step whose undo
    also removes this one. `rates` are the keys of the prices that apply from this step on.
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
    """A price per hour: what it is for, dollars per hour, and how it was calculated."""

    key: str
    title: str
    usd_per_hour: float
    method: str
    # Applies while a pod needs the node and a little longer, until the autoscaler removes it.
    while_busy: bool = False


@dataclass(frozen=True)
class Plan:
    """Everything that a deployment will do, known before it starts."""

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
    """The kubeconfig's context, if one was given; every kubectl command of the plan includes it."""

    def expected_s(self) -> float:
        """Return the sum of the steps' expected times."""
        return sum(step.expected_s for step in self.steps)


# Measured: the quick suite takes under 90 s on two cores; runs of the standard size take 5 to 10 minutes.
EXPECTED_S = {"quick": 120.0, "standard": 600.0, "mlperf": 6 * 3600.0}


@dataclass(frozen=True)
class BenchmarkChoices:
    """What the Job runs, and its resources."""

    suite: str = "standard"
    workload: str = "resnet50"
    device: str = "cuda"
    gpus: int = 1
    cpus: int = 3
    memory: str = "8Gi"
    image: str = ""
    namespace: str = "gputax"
    deadline_s: int = 7200
    environment: str = K8S
    xen_nodes: str = ""
    """Nodes to label, with commas between them."""
    # A finished Job and its log stay for a day, so that a later `gputax collect` finds them.
    ttl_s: int = 86400

    @property
    def in_guest(self) -> bool:
        """Whether the Job's pod is a Xen guest."""
        return XEN in self.environment.split("+")


def job_name(results_name: str) -> str:
    """Return the Job's name: `gpu-benchmark-baseline` for results/baseline."""
    cleaned = re.sub(r"[^a-z0-9]+", "-", results_name.lower()).strip("-") or "run"
    return f"gpu-benchmark-{cleaned}"[:52].rstrip("-")


def benchmark_steps(
    choices: BenchmarkChoices, run_id: str, name: str, *, pending_s: float, unschedulable_s: float, start_s: float,
    rates: tuple[str, ...] = (), within: str = "",
) -> tuple[Step, ...]:  # fmt: skip
    """Return the last four steps; `start_s` is a node's expected start time, `pending_s` when to give up on it."""
    pod = PodPlan(
        name=job_name(name),
        run_id=run_id,
        image=choices.image,
        # A guest has no GPU: dom0 keeps it, and libvgpu in the guest talks to the proxy there.
        size=Size(choices.cpus, choices.memory, 0 if choices.in_guest else choices.gpus),
        namespace=choices.namespace,
        role="benchmark",
        runtime_class=XEN_RUNTIME_CLASS if choices.in_guest else "",
    )
    words = suite_words(
        choices.suite, "--workload", choices.workload, "--device", choices.device, environment=choices.environment
    )
    manifest = job(pod, words, deadline_s=choices.deadline_s, ttl_s=choices.ttl_s)
    run_s = EXPECTED_S.get(choices.suite, 600.0)
    where = (choices.namespace, pod.name)
    return (
        Step(
            "namespace",
            f"Namespace {choices.namespace}",
            ApplyObjects("10-namespace.yaml", (namespace(choices.namespace),)),
            ObjectsExist(),
            expected_s=2,
            within=within,
        ),
        Step(
            "job",
            "Benchmark job deployment",
            ApplyObjects("20-job.yaml", (manifest,)),
            ObjectsExist(),
            expected_s=2,
            within=within,
            rates=rates,
        ),
        Step(
            "run",
            f"Benchmark run ({choices.suite} suite, {choices.workload})",
            AwaitJob(*where, pending_s, float(choices.deadline_s) + pending_s, unschedulable_s),
            JobSucceeded(*where),
            expected_s=start_s + run_s,
            within=within,
        ),
        Step("collect", "Results collection", CollectResults(*where), ResultsCollected(), expected_s=5),
    )


def guest_steps(choices: BenchmarkChoices) -> tuple[Step, ...]:
    """Return what pods in Xen guests need of the cluster: nodes with the label, and the RuntimeClass."""
    nodes = tuple(name.strip() for name in choices.xen_nodes.split(",") if name.strip())
    return (
        Step(
            "xen-nodes",
            f"Xen nodes ({XEN_NODE_LABEL}=true)",
            LabelNodes(nodes, XEN_NODE_LABEL),
            NodesLabelled(),
            expected_s=2,
        ),
        Step(
            "runtime-class",
            f"RuntimeClass {XEN_RUNTIME_CLASS}",
            ApplyObjects("15-runtime-class.yaml", (runtime_class(),)),
            ObjectsExist(),
            expected_s=2,
        ),
    )


def gpu_resource() -> str:
    """Return the resource that GPU nodes advertise."""
    return GPU_RESOURCE
