"""What a deployment is asked to do, checked and completed before anything is changed; its state keeps it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gputax import __version__
from gputax.deploy.cost import check_place, default_machine, full_accelerator, load_prices
from gputax.deploy.plan import BenchmarkChoices
from gputax.deploy.providers import PROVIDERS
from gputax.deploy.providers.current import CurrentChoices
from gputax.deploy.providers.gke import (
    NO_PROJECT,
    GkeChoices,
    check_account,
    check_names,
    check_programs,
    check_quota,
    default_image,
    find_project,
)
from gputax.deploy.tools import RealTools
from gputax.errors import UsageError, unknown_name
from gputax.plan.cells import DEVICE_SYNONYMS
from gputax.plan.environment import K8S, XEN
from gputax.plan.options import IMAGE, NAMESPACE
from gputax.plan.workloads import WORKLOADS

# Those that are in the image; a file of the user's is not.
SUITES = ("quick", "standard", "mlperf")
OPTIONS_OF = {
    "current": ("context", "device_plugin", "price_per_hour", "with_xen", "xen_nodes"),
    "gke": (
        "project", "zone", "machine", "accelerator", "spot", "max_nodes", "cluster", "repository", "builder",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class DeployRequest:
    """Everything that can be asked of a deployment; what is empty or 0 depends on the provider."""

    provider: str = "current"
    suite: str = "standard"
    workload: str = "resnet50"
    """One workload, or several with commas between them."""
    device: str = "cuda"
    gpus: int = 1
    cpus: int = 0
    memory: str = ""
    image: str = ""
    namespace: str = NAMESPACE
    deadline_s: float = 7200.0
    """Kubernetes ends the Job after this time."""
    prices: str = ""
    """A price table of your own."""
    # For the provider `current`.
    context: str = ""
    device_plugin: bool = True
    price_per_hour: float = 0.0
    with_xen: bool = False
    """Then the same Job in Xen guests, and a comparison of the two."""
    xen_nodes: str = ""
    """Nodes to label for it, with commas between them; none where the nodes have the label."""
    # For the provider `gke`.
    project: str = ""
    zone: str = "us-central1-a"
    machine: str = ""
    accelerator: str = "nvidia-tesla-t4"
    spot: bool = False
    max_nodes: int = 2
    cluster: str = "gpu-benchmark-cluster"
    repository: str = "gputax"
    builder: str = "docker"


def deploy_request(provider: str = "current", **given: Any) -> DeployRequest:
    """Return the request, or raise if an option is unknown or is for another provider."""
    if provider not in PROVIDERS:
        raise unknown_name("provider", provider, PROVIDERS)
    for name in given:
        if name not in DeployRequest.__dataclass_fields__:
            raise unknown_name("option", name, DeployRequest.__dataclass_fields__)
    _refuse_options_of_others(provider, given)
    if given.get("xen_nodes") and not given.get("with_xen"):
        raise UsageError("--xen-nodes is for --with-xen", next_step="add --with-xen, or drop --xen-nodes")
    return DeployRequest(provider, **given)


def _refuse_options_of_others(provider: str, given: Iterable[str]) -> None:
    for other, names in OPTIONS_OF.items():
        foreign = [name for name in names if name in given]
        if other != provider and foreign:
            raise UsageError(
                f"--{foreign[0].replace('_', '-')} is for the provider {other}", next_step=f"gputax deploy {other} …"
            )


def choices_of(request: DeployRequest, *, dry_run: bool = False) -> dict[str, Any]:
    """Return the choices to record; a dry run does not look for a cluster or a project."""
    if request.suite not in SUITES:
        raise unknown_name("suite", request.suite, SUITES)
    for name in request.workload.split(","):
        if name.strip() not in WORKLOADS:
            raise unknown_name("workload", name.strip(), WORKLOADS)
    if request.device not in ("cpu", "cuda"):
        raise unknown_name("device", request.device, ("cuda", "cpu"), DEVICE_SYNONYMS)
    return _gke_choices(request, dry_run) if request.provider == "gke" else _current_choices(request, dry_run)


def _benchmark(request: DeployRequest, *, cpus: int, memory: str, image: str) -> dict[str, Any]:
    return asdict(
        BenchmarkChoices(
            suite=request.suite,
            workload=request.workload,
            device=request.device,
            gpus=request.gpus if request.device == "cuda" else 0,
            cpus=request.cpus or cpus,
            memory=request.memory or memory,
            image=request.image or image,
            namespace=request.namespace,
            deadline_s=int(request.deadline_s),
        )
    )


def _current_choices(request: DeployRequest, dry_run: bool) -> dict[str, Any]:
    context, server = (request.context, "") if dry_run else _cluster_named(request.context)
    place = CurrentChoices(request.device_plugin, request.price_per_hour, context, server)
    return {"benchmark": _benchmark(request, cpus=2, memory="4Gi", image=IMAGE), "current": asdict(place)}


def guest_choices(request: DeployRequest, choices: dict[str, Any]) -> dict[str, Any]:
    """Return the choices of the same Job in Xen guests."""
    benchmark = {**choices["benchmark"], "environment": f"{K8S}+{XEN}", "xen_nodes": request.xen_nodes}
    return {**choices, "benchmark": benchmark}


def _cluster_named(context: str) -> tuple[str, str]:
    """Read the kubeconfig's context and server, so that the deployment stays with this one."""
    from gputax.kubernetes.client import Cluster

    cluster = Cluster(context)
    return cluster.context, cluster.server


def _gke_choices(request: DeployRequest, dry_run: bool) -> dict[str, Any]:
    if request.device != "cuda":
        raise UsageError(
            "gke creates GPU nodes, which cost money; a CPU run does not need them",
            where=f"--device {request.device}",
            next_step=f"gputax deploy current --device {request.device}, on a cluster that you have",
        )
    prices = load_prices(Path(request.prices) if request.prices else None)
    accelerator = full_accelerator(prices, request.accelerator)
    machine_name = request.machine or default_machine(prices, accelerator)
    check_place(prices, request.zone, machine_name, accelerator, request.gpus)
    place = GkeChoices(
        project=find_project(request.project, os.environ, None if dry_run else RealTools()) or NO_PROJECT,
        zone=request.zone,
        machine=machine_name,
        accelerator=accelerator,
        accelerator_count=request.gpus,
        spot=request.spot,
        max_nodes=request.max_nodes,
        cluster=request.cluster,
        repository=request.repository,
        builder=request.builder,
    )
    check_names(place)
    machine = prices.machines[place.machine]
    benchmark = _benchmark(
        request,
        cpus=max(1, machine.vcpus - 1),
        memory=f"{int(machine.memory_gb * 0.6)}Gi",
        image=default_image(place, __version__),
    )
    return {"benchmark": benchmark, "gke": asdict(place), "build": not request.image, "prices": request.prices}


def check_gke(choices: dict[str, Any], fresh: bool) -> None:
    """Raise if account, programs or, for a new node pool, the quota would let the deployment fail later."""
    place, tools = GkeChoices(**choices["gke"]), RealTools()
    check_account(place, tools)
    check_programs(place, choices["build"], Path())
    if fresh:
        check_quota(place, load_prices(Path(choices["prices"]) if choices["prices"] else None), tools)
