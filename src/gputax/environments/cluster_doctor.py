"""The doctor's look at a cluster: ask it, and turn the answers into findings."""

from __future__ import annotations

from typing import Any

from gputax.environments.allowance import local_cpus
from gputax.environments.checks.cluster import Wanted, diagnose_cluster
from gputax.environments.checks.finding import Finding
from gputax.plan.environment_options import EnvironmentOptions


def examine_cluster(environment: str, options: EnvironmentOptions, device: str) -> tuple[dict[str, Any], list[Finding]]:
    """Return the cluster's facts and what they mean for the pod that the options describe."""
    from gputax.cluster.doctor import inspect_cluster

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
