"""The doctor's look at a cluster: ask it, and turn the answers into findings."""

from __future__ import annotations

from typing import Any

from gputax.doctor.cluster_findings import Wanted, diagnose_cluster
from gputax.doctor.finding import Finding
from gputax.environments.allowance import local_cpus
from gputax.plan.options import EnvironmentOptions


def examine_cluster(environment: str, options: EnvironmentOptions, device: str) -> tuple[dict[str, Any], list[Finding]]:
    """Return the cluster's facts and what they mean for the pod that the options describe."""
    from gputax.kubernetes.inspection import inspect_cluster

    facts = inspect_cluster(options.context, options.namespace)
    wanted = Wanted(
        environment,
        options.namespace,
        options.cpus or local_cpus(),
        options.memory,
        options.gpu_count(device),
        options.runtime_class,
    )
    return facts, diagnose_cluster(facts, wanted)
