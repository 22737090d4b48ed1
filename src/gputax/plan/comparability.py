"""What must be equal before two cells may be compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Value: TypeAlias = str | int | float | bool
Conditions: TypeAlias = Mapping[str, Value | None]
"""What is known of how a cell was measured; a key that is absent or None is not known."""

# LoadGen logs six significant digits, so that is how equal two rates can be seen to be.
RELATIVE_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Rule:
    """One condition: whether its difference forbids a comparison or is only told."""

    field: str
    title: str
    blocking: bool
    advice: str = ""


@dataclass(frozen=True)
class Difference:
    """One condition in which two cells are known to differ."""

    field: str
    a: Value
    b: Value
    blocking: bool

    @property
    def text(self) -> str:
        """The difference for people."""
        rule = _RULE_OF[self.field]
        advice = f" ({rule.advice})" if rule.advice else ""
        return f"{rule.title}: {_shown(self.a)} and {_shown(self.b)}{advice}"


RULES: tuple[Rule, ...] = (
    Rule("workload", "workload", True),
    Rule("scenario", "scenario", True),
    Rule("batch_size", "batch size", True),
    Rule("tenants", "tenants", True),
    Rule("counted", "throughput counts", True),
    Rule("device", "device", True),
    Rule("device_name", "device name", True),
    Rule("engine", "engine", True),
    Rule("engine_version", "engine version", True),
    Rule("provider", "provider", True),
    Rule("precision", "precision", True),
    Rule("threads", "threads", True, "measure both with the same --threads"),
    Rule("inter_op", "inter-op threads", True),
    Rule("spin", "spinning threads", True),
    Rule("copies", "copies to the device", True),
    Rule("compile", "torch.compile", True),
    Rule("cuda_graphs", "CUDA graphs", True),
    Rule("weights", "weights", True),
    Rule("weights_sha256", "sha256 of the weights", True),
    Rule("inputs", "inputs", True),
    Rule("target_qps", "rate of arrivals per second", True, "measure both with the same --qps"),
    Rule("latency_bound_ms", "latency bound in ms", True, "measure both with the same --bound-ms"),
    Rule("max_wait_us", "longest wait of the batcher in µs", True),
    Rule("governors", "CPU frequency governor", True),
    Rule("gpu_sm_clock_max_mhz", "highest SM clock in MHz", True),
    Rule("gpu_memory_clock_max_mhz", "highest memory clock in MHz", True),
    Rule("gpu_power_limit_w", "GPU power limit in W", True),
    # Below: told, not forbidden. Either the layer under test changes it (kernel, hypervisor, MIG, quota), or its
    # effect is smaller than what an unpaired comparison leaves open anyway.
    Rule("gpu_uuid", "GPU", False, "another unit of the same model"),
    Rule("gpu_driver", "GPU driver", False),
    Rule("gpu_ecc", "ECC", False),
    Rule("gpu_mig", "MIG mode", False),
    Rule("gpu_pcie_width", "PCIe lanes", False),
    Rule("cpu_model", "CPU", False),
    Rule("usable_cpus", "CPUs that may be used", False),
    Rule("quota_cpus", "CPU quota", False),
    Rule("kernel", "kernel", False),
    Rule("distribution", "distribution", False),
    Rule("hypervisor", "runs under a hypervisor", False),
    Rule("judged_percentile", "percentile that LoadGen judges", False),
    Rule("sample_count", "different inputs", False),
    Rule("seed_offset", "seed of the arrivals", False),
    Rule("loadgen_version", "LoadGen", False),
    Rule("gputax_version", "gputax", False),
)
# The conditions that a worker's facts name, some of them among its engine's options.
FACT_FIELDS: tuple[str, ...] = (
    "workload", "device", "engine", "engine_version", "provider", "precision", "threads", "inter_op", "spin", "copies",
    "compile", "cuda_graphs", "weights", "weights_sha256", "inputs", "sample_count",
)  # fmt: skip
_RULE_OF: dict[str, Rule] = {rule.field: rule for rule in RULES}


def differences(a: Conditions, b: Conditions) -> tuple[Difference, ...]:
    """Return every condition that both sides know and that is not the same, in the order of `RULES`."""
    found = []
    for rule in RULES:
        left, right = a.get(rule.field), b.get(rule.field)
        if left is not None and right is not None and not _same(left, right):
            found.append(Difference(rule.field, left, right, rule.blocking))
    return tuple(found)


def unchecked(a: Conditions, b: Conditions) -> tuple[str, ...]:
    """Return the titles of the conditions that matter and that only one side knows."""
    return tuple(
        rule.title for rule in RULES if rule.blocking and (a.get(rule.field) is None) != (b.get(rule.field) is None)
    )


def conditions_of_facts(facts: Mapping[str, Any]) -> dict[str, Value]:
    """Return the conditions that a worker's own facts tell: what was really loaded, not what was asked for."""
    options = facts.get("options")
    found = {**(options if isinstance(options, Mapping) else {}), **facts, "inputs": facts.get("samples")}
    return {name: found[name] for name in FACT_FIELDS if isinstance(found.get(name), str | int | float | bool)}


def blocking_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[str, ...]:
    """Return in words what two workers' facts must not differ in, and do."""
    found = differences(conditions_of_facts(a), conditions_of_facts(b))
    return tuple(difference.text for difference in found if difference.blocking)


def _same(left: Value, right: Value) -> bool:
    if isinstance(left, str) or isinstance(right, str):
        return str(left).casefold() == str(right).casefold()
    return math.isclose(left, right, rel_tol=RELATIVE_TOLERANCE)


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.7g}" if isinstance(value, float) else str(value)
