"""The provider `current`: the cluster of the kubeconfig; only our own objects are created."""

from __future__ import annotations

from dataclasses import dataclass

from gputax.deploy.gpu_nodes import PLUGIN_VERSION, plugin_daemon_set
from gputax.deploy.plan import (
    ApplyObjects,
    AwaitGpus,
    BenchmarkChoices,
    GpusAllocatable,
    Plan,
    Rate,
    Step,
    benchmark_steps,
    gpu_resource,
    guest_steps,
)

PLUGIN_LIMIT_S = 180.0
PENDING_LIMIT_S = 300.0
UNSCHEDULABLE_S = 30.0


@dataclass(frozen=True)
class CurrentChoices:
    """Options for an existing cluster."""

    install_device_plugin: bool = True
    usd_per_hour: float = 0.0
    # Recorded at the first deploy, so that no later command uses another cluster.
    context: str = ""
    server: str = ""


def current_plan(choices: CurrentChoices, benchmark: BenchmarkChoices, run_id: str, results: str) -> Plan:
    """Return the plan: GPU nodes, namespace, Job, run, results."""
    name = results.rstrip("/").rsplit("/", 1)[-1]
    gpus = (_gpus(choices),) if benchmark.gpus and not benchmark.in_guest else ()
    guests = guest_steps(benchmark) if benchmark.in_guest else ()
    rates = ("pod",) if choices.usd_per_hour else ()
    last = benchmark_steps(
        benchmark,
        run_id,
        name,
        pending_s=PENDING_LIMIT_S,
        unschedulable_s=UNSCHEDULABLE_S,
        start_s=10.0,
        rates=rates,
    )
    rate = Rate("pod", "the Job's share of your cluster", choices.usd_per_hour, "as given with --price-per-hour", True)
    notes = ["Nothing else is changed in the cluster; destroy removes the objects that were not there before."]
    if gpus and choices.install_device_plugin:
        notes.append(
            f"NVIDIA's device plugin {PLUGIN_VERSION} is installed only if a GPU node advertises no "
            f"{gpu_resource()}; --no-device-plugin forbids it."
        )
    return Plan(
        provider="current",
        title=_title(choices),
        steps=(*gpus, *guests, *last),
        rates=(rate,) if rates else (),
        price_note="as given with --price-per-hour"
        if rates
        else "your own cluster; use --price-per-hour to count its cost",
        notes=tuple(notes),
        context=choices.context,
    )


def _title(choices: CurrentChoices) -> str:
    if choices.server:
        return f"the cluster {choices.server} ({choices.context})"
    return f"the cluster of the context {choices.context}" if choices.context else "the cluster of your kubeconfig"


def _gpus(choices: CurrentChoices) -> Step:
    plugin = ApplyObjects("05-nvidia-device-plugin.yaml", (plugin_daemon_set(),))
    return Step(
        "gpus",
        "GPU nodes and device plugin",
        AwaitGpus(plugin, choices.install_device_plugin, gpu_resource(), PLUGIN_LIMIT_S),
        GpusAllocatable(gpu_resource()),
        expected_s=5,
    )
