"""From a run record to the conditions under which each of its cells was measured; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputax.plan.comparability import Value, conditions_of_facts
from gputax.plan.micro import is_micro
from gputax.results.documents.run import Benchmark, RunRecord
from gputax.results.importers.source import device_name_of, printable, scenario_named

_GPU_FIELDS = {
    "gpu_uuid": "uuid",
    "gpu_driver": "driver_version",
    "gpu_sm_clock_max_mhz": "sm_clock_max_mhz",
    "gpu_memory_clock_max_mhz": "memory_clock_max_mhz",
    "gpu_power_limit_w": "power_limit_w",
    "gpu_ecc": "ecc",
    "gpu_mig": "mig",
    "gpu_pcie_width": "pcie_width",
}


def record_conditions(record: RunRecord, benchmark: Benchmark) -> dict[str, Value]:
    """Return all that the record knows; what it does not know is left out."""
    fingerprint = record.fingerprint
    facts = _at(fingerprint, "setups", benchmark.workload)
    found: dict[str, Any] = {
        **(conditions_of_facts(facts) if isinstance(facts, Mapping) else {}),
        "workload": benchmark.workload,
        "scenario": scenario_named(benchmark.scenario),
        "batch_size": benchmark.batch_size,
        "tenants": benchmark.tenants,
        "counted": "operations" if is_micro(benchmark.workload) else "samples",
        "device": benchmark.device,
        "device_name": device_name_of(record.gpu_info.name),
        # The options are told one by one; those of the synthetic engine are the difference that a test injects.
        "engine": benchmark.engine.partition(":")[0],
        "provider": benchmark.provider,
        "precision": benchmark.precision,
        "threads": benchmark.threads,
        "weights": benchmark.weights,
        "weights_sha256": benchmark.weights_sha256,
        "target_qps": benchmark.target_qps,
        "latency_bound_ms": benchmark.latency_bound_ms,
        "judged_percentile": benchmark.judged_percentile,
        "seed_offset": benchmark.load.get("seed_offset"),
        "max_wait_us": benchmark.load.get("max_wait_us") if benchmark.target_qps is not None else None,
        "loadgen_version": _version(benchmark.loadgen.version if benchmark.loadgen else None),
        "gputax_version": record.gputax_version,
        "usable_cpus": _at(fingerprint, "cpu_allowance", "threads"),
        "quota_cpus": _at(fingerprint, "cpu_allowance", "quota_cpus"),
        "governors": _joined(_at(fingerprint, "host", "governors")),
        **{name: _at(fingerprint, "host", name) for name in ("kernel", "distribution", "hypervisor")},
    }
    if benchmark.device != "cpu":  # of a CPU the model is the device's name already
        found["cpu_model"] = _at(fingerprint, "host", "cpu_model")
    if benchmark.device == "cuda":
        found |= _gpu_conditions(fingerprint.get("gpus"))
    return {name: _clean(value) for name, value in found.items() if isinstance(value, str | int | float | bool)}


def _gpu_conditions(gpus: Any) -> dict[str, Any]:
    used = gpus[0] if isinstance(gpus, list) and gpus and isinstance(gpus[0], Mapping) else {}
    return {name: used.get(key) for name, key in _GPU_FIELDS.items()}


def _at(data: Any, *keys: str) -> Any:
    """Follow keys down; a fingerprint is free-form, so any level may be something else."""
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def _joined(names: Any) -> str | None:
    return ", ".join(map(str, names)) if isinstance(names, list) and names else None


def _version(text: str | None) -> str | None:
    """Return `6.0.17` of `6.0.17 @ d6147c7eb7`."""
    return text.split()[0] if text and text.split() else None


def _clean(value: Value) -> Value:
    return printable(value) if isinstance(value, str) else value
