"""What the files in kubernetes/ must say: the same functions make them that make a run's pods, and a test compares."""

from __future__ import annotations

from gputax.kubernetes.objects import (
    NATIVE,
    XEN_RUNTIME_CLASS,
    Manifest,
    PodPlan,
    Size,
    job,
    namespace,
    runtime_class,
    suite_words,
)
from gputax.kubernetes.permissions import role, role_binding, service_account
from gputax.kubernetes.proxy_objects import proxy_daemon_set, proxy_plan, proxy_variables
from gputax.plan.options import IMAGE

RUN_ID = "manual"
JOB_NAME = "gputax-benchmark"
CPU = Size(cpus=2, memory="4Gi")
GPU = Size(cpus=2, memory="4Gi", gpus=1)


def access() -> list[Manifest]:
    """Return what a run from outside needs: the namespace, an account and the least role; nothing that runs."""
    return [namespace(), service_account(), role(), role_binding()]


def base() -> list[Manifest]:
    """Return the base: access, and a Job on the CPU that every cluster can run."""
    return [
        *access(),
        job(PodPlan(JOB_NAME, RUN_ID, IMAGE, CPU, role="benchmark"), suite_words()),
    ]


def baseline() -> list[Manifest]:
    """Return the overlay `baseline`: the Job with one GPU, on CUDA or not at all."""
    plan = PodPlan(JOB_NAME, RUN_ID, IMAGE, GPU, role="benchmark")
    return [*base()[:-1], job(plan, suite_words("standard", "--device", "cuda"))]


def gpu_proxy() -> list[Manifest]:
    """Return the overlay `gpu-proxy`: a proxy on every GPU node, and a tenant's Job without a device."""
    plan = PodPlan(
        JOB_NAME,
        RUN_ID,
        IMAGE,
        CPU,
        role="benchmark",
        variables={"GPUTAX_NATIVE": NATIVE, **proxy_variables()},
        tenant_of_proxy=True,
    )
    words = suite_words("quick", "--workload", "micro", environment="k8s+proxy")
    return [
        namespace(hostpath=True),
        *base()[1:-1],
        proxy_daemon_set(proxy_plan(), RUN_ID),
        job(plan, words),
    ]


def xen() -> list[Manifest]:
    """Return the overlay `xen`: the RuntimeClass and the Job in it; evidence refuses what was no Xen guest."""
    plan = PodPlan(JOB_NAME, RUN_ID, IMAGE, GPU, role="benchmark", runtime_class=XEN_RUNTIME_CLASS)
    return [*base()[:-1], runtime_class(), job(plan, suite_words(environment="k8s+xen"))]
