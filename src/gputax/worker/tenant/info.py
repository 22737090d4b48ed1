"""Who a tenant is: the labels of `gputax_tenant_info`, from the engine, the host and the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gputax import __version__
from gputax.plan.cells import Setup
from gputax.plan.claims import device_label
from gputax.worker.probes.host import host_facts
from gputax.worker.probes.nvidia import device_facts, visible_device

PORT_VARIABLE = "GPUTAX_METRICS_PORT"
"""A worker that finds it set serves metrics there."""
ADDRESS_VARIABLE = "GPUTAX_METRICS_ADDRESS"
TECHNIQUE_VARIABLE = "GPUTAX_TECHNIQUE"
IMAGE_VARIABLE = "GPUTAX_IMAGE"
POD_VARIABLE = "GPUTAX_POD"
NODE_VARIABLE = "GPUTAX_NODE"
MPS_PERCENTAGE_VARIABLE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MPS_MEMORY_VARIABLE = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
NO_LIMIT = "none"


def tenant_labels(setup: Setup, facts: Mapping[str, Any], technique: str = "") -> dict[str, str]:
    """Return the labels of the tenant that this process is."""
    gpus = device_facts()["gpus"] if facts["device"] == "cuda" else []
    return labels_from(setup, facts, host_facts(), gpus, os.environ, technique)


def labels_from(
    setup: Setup,
    facts: Mapping[str, Any],
    host: Mapping[str, Any],
    gpus: list[dict[str, Any]],
    environ: Mapping[str, str],
    technique: str = "",
) -> dict[str, str]:
    """Return the labels; unknown values are empty, and a missing limit is `none`."""
    gpu = _own_gpu(gpus, environ)
    name = facts.get("device_name") or (gpu.get("name") if facts["device"] == "cuda" else host.get("cpu_model"))
    return {
        "technique": technique or environ.get(TECHNIQUE_VARIABLE, ""),
        "workload": setup.workload,
        "engine": str(facts.get("engine", setup.engine)),
        "device": str(facts["device"]),
        "device_label": device_label(str(facts["device"]), str(name or "of unknown name")),
        "device_id": device_id(gpu, environ),
        "threads": _text(facts.get("threads"), ""),
        "precision": str(facts.get("precision", setup.precision)),
        "cpu_quota": _text(host.get("quota_cpus"), NO_LIMIT),
        "memory_limit_mb": _text(host.get("memory_limit_mb"), NO_LIMIT),
        "mps_thread_percentage": environ.get(MPS_PERCENTAGE_VARIABLE) or NO_LIMIT,
        "mps_memory_limit": environ.get(MPS_MEMORY_VARIABLE) or NO_LIMIT,
        "image": environ.get(IMAGE_VARIABLE, ""),
        "pod": pod_name(environ),
        "node": environ.get(NODE_VARIABLE, ""),
        "version": __version__,
    }


def pod_name(environ: Mapping[str, str] = os.environ) -> str:
    """Return the pod's name: from the manifest, or the host name, which in a pod is the same."""
    in_pod = "KUBERNETES_SERVICE_HOST" in environ
    return environ.get(POD_VARIABLE) or (environ.get("HOSTNAME", "") if in_pod else "")


def device_id(gpu: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """Return the id of the device given to this container, else of the one that NVML shows; empty for a CPU.

    For a container with a MIG instance only the variable is right: NVML lists its parent first.
    """
    for variable in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        given = environ.get(variable, "").strip()
        if given.startswith(("GPU-", "MIG-")):
            return given
    return str(gpu.get("uuid") or "")


def _own_gpu(gpus: list[dict[str, Any]], environ: Mapping[str, str]) -> dict[str, Any]:
    selected = visible_device(environ)
    if selected is None or not gpus:
        return {}
    if selected.isdigit():
        return gpus[int(selected)] if int(selected) < len(gpus) else {}
    return next((gpu for gpu in gpus if gpu.get("uuid") == selected), gpus[0])


def _text(value: object, missing: str) -> str:
    return missing if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)
