"""The last steps of every provider: namespace, Job, run, and collecting the results."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gputax.deploy.plan import (
    ApplyObjects,
    AwaitJob,
    CollectResults,
    JobSucceeded,
    ObjectsExist,
    ResultsCollected,
    Step,
)
from gputax.kubernetes.objects import GPU_RESOURCE, PodPlan, Size, job, namespace, suite_words

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
    # A finished Job and its log stay for a day, so that a later `gputax collect` finds them.
    ttl_s: int = 86400


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
        size=Size(choices.cpus, choices.memory, choices.gpus),
        namespace=choices.namespace,
        role="benchmark",
    )
    words = suite_words(choices.suite, "--workload", choices.workload, "--device", choices.device)
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


def gpu_resource() -> str:
    """Return the resource that GPU nodes advertise."""
    return GPU_RESOURCE
