"""What must be equal before two cells are compared, between the sides of a duet, and when a run is resumed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Value: TypeAlias = str | int | float | bool
Conditions: TypeAlias = Mapping[str, Value | None]
"""Known conditions of a measurement; a key that is absent or None is unknown."""

# LoadGen logs six significant digits, so two rates can only be compared to that precision.
RELATIVE_TOLERANCE = 1e-4


Purpose = Literal["compare", "duet", "engine-b", "resume"]
"""Why two sets of conditions are compared; `engine-b` is a duet whose engines differ on purpose."""
ALWAYS: tuple[Purpose, ...] = ("compare", "duet", "engine-b", "resume")
SAME_ENGINE: tuple[Purpose, ...] = ("compare", "duet", "resume")
# Both sides of a duet get the same load on the same machine, or their workers do not report it.
NOT_IN_A_DUET: tuple[Purpose, ...] = ("compare", "resume")
# Only reported in comparisons. The layer under test changes it (kernel, hypervisor, MIG, quota), or the effect is
# smaller than what an unpaired comparison leaves open anyway.
TOLD: tuple[Purpose, ...] = ("resume",)


@dataclass(frozen=True)
class Rule:
    """One condition: the purposes for which a difference is forbidden; for the others it is only reported."""

    field: str
    title: str
    blocks: tuple[Purpose, ...]
    advice: str = ""
    refuses: bool = False
    """A side for which it is true is comparable with nothing, not even with its like."""


@dataclass(frozen=True)
class Difference:
    """One condition in which two sides are known to differ."""

    rule: Rule
    a: Value | None
    b: Value | None
    purpose: Purpose = "compare"

    @property
    def blocking(self) -> bool:
        """Whether it forbids the requested purpose."""
        return self.purpose in self.rule.blocks

    @property
    def text(self) -> str:
        """The difference as text."""
        if self.purpose == "resume":
            return f"{self.rule.title} was {_shown(self.a)}, is {_shown(self.b)}"
        advice = f" ({self.rule.advice})" if self.rule.advice else ""
        return f"{self.rule.title}: {_shown(self.a)} and {_shown(self.b)}{advice}"


RULES: tuple[Rule, ...] = (
    Rule(
        "emulated",
        "hypervisor emulated in software",
        ("compare", "duet", "engine-b"),
        "such a run proves function; its times say nothing",
        refuses=True,
    ),
    Rule("workload", "workload", ALWAYS),
    Rule("scenario", "scenario", NOT_IN_A_DUET),
    Rule("batch_size", "batch size", NOT_IN_A_DUET),
    Rule("tenants", "tenants", NOT_IN_A_DUET),
    Rule("counted", "throughput counts", NOT_IN_A_DUET),
    Rule("device", "device", ALWAYS),
    Rule("device_name", "device name", SAME_ENGINE),
    Rule("engine", "engine", SAME_ENGINE),
    Rule("engine_version", "engine version", SAME_ENGINE),
    Rule("provider", "provider", SAME_ENGINE),
    Rule("precision", "precision", ALWAYS),
    Rule("threads", "threads", ALWAYS, "measure both with the same --threads"),
    Rule("inter_op", "inter-op threads", SAME_ENGINE),
    Rule("spin", "spinning threads", SAME_ENGINE),
    Rule("copies", "copies to the device", SAME_ENGINE),
    Rule("compile", "torch.compile", SAME_ENGINE),
    Rule("cuda_graphs", "CUDA graphs", SAME_ENGINE),
    Rule("weights", "weights", NOT_IN_A_DUET),
    Rule("weights_sha256", "sha256 of the weights", SAME_ENGINE),
    Rule("program_sha256", "sha256 of the program and its scripts", TOLD),
    Rule("inputs", "inputs", ALWAYS),
    Rule(
        "target_qps",
        "rate of arrivals per second",
        NOT_IN_A_DUET,
        "measure the second with --like, or both with the same --qps",
    ),
    Rule(
        "latency_bound_ms",
        "latency bound in ms",
        NOT_IN_A_DUET,
        "measure the second with --like, or both with the same --bound-ms",
    ),
    Rule("max_wait_us", "longest wait of the batcher in µs", NOT_IN_A_DUET),
    Rule("governors", "CPU frequency governor", NOT_IN_A_DUET),
    Rule("gpu_sm_clock_max_mhz", "highest SM clock in MHz", NOT_IN_A_DUET),
    Rule("gpu_memory_clock_max_mhz", "highest memory clock in MHz", NOT_IN_A_DUET),
    Rule("gpu_power_limit_w", "GPU power limit in W", NOT_IN_A_DUET),
    Rule("gpu_uuid", "GPU", TOLD, "another unit of the same model"),
    Rule("gpu_driver", "GPU driver", TOLD),
    Rule("gpu_ecc", "ECC", TOLD),
    Rule("gpu_mig", "MIG mode", TOLD),
    Rule("gpu_pcie_width", "PCIe lanes", TOLD),
    Rule("cpu_model", "CPU", TOLD),
    Rule("usable_cpus", "CPUs that may be used", TOLD),
    Rule("quota_cpus", "CPU quota", TOLD),
    Rule("kernel", "kernel", TOLD),
    Rule("distribution", "distribution", TOLD),
    Rule("hypervisor", "runs under a hypervisor", TOLD),
    Rule("judged_percentile", "percentile that LoadGen judges", TOLD),
    Rule("sample_count", "different inputs", ("duet", "engine-b", "resume")),
    Rule("seed_offset", "seed of the arrivals", TOLD),
    Rule("loadgen_version", "LoadGen", TOLD),
    Rule("client", "load generator", TOLD),
    Rule("input_tokens", "input tokens per request", TOLD),
    Rule("output_tokens", "output tokens per request", TOLD),
    Rule("gputax_version", "gputax", TOLD),
)
# Conditions in a worker's facts, some of them among its engine's options.
FACT_FIELDS: tuple[str, ...] = (
    "workload", "device", "device_name", "engine", "engine_version", "provider", "precision", "threads", "inter_op",
    "spin", "copies", "compile", "cuda_graphs", "weights", "weights_sha256", "program_sha256", "inputs", "sample_count",
    "emulated",
)  # fmt: skip
# The parts of a fingerprint that must be identical for all cells of one record.
RESUMED_PARTS = ("host", "cpu_allowance", "gpus", "packages", "setups")
_RULE_OF: dict[str, Rule] = {rule.field: rule for rule in RULES}


def differences(a: Conditions, b: Conditions, purpose: Purpose = "compare") -> tuple[Difference, ...]:
    """Return every condition in which the two differ, in the order of `RULES`; of a fingerprint, in its own order.

    In a comparison both sides must know it. Elsewhere gputax itself reported both: if only one knows it, it differs
    too, except that the earlier cells of a resumed record may be from a version that reported less.
    """
    found = []
    for rule in map(_rule_at, a) if purpose == "resume" else RULES:
        left, right = a.get(rule.field), b.get(rule.field)
        if rule.refuses and purpose != "resume" and (left is True or right is True):
            found.append(Difference(rule, left is True, right is True, purpose))
            continue
        if purpose == "compare" and (left is None or right is None):
            continue
        if not _same(left, right):
            found.append(Difference(rule, left, right, purpose))
    return tuple(found)


def _rule_at(path: str) -> Rule:
    """Return the rule for a fingerprint's detail, by the last part of its path; a detail without a rule blocks too."""
    known = _RULE_OF.get(path.rpartition(".")[2])
    return Rule(path, path, known.blocks if known else TOLD)


def blocking_differences(a: Conditions, b: Conditions, purpose: Purpose) -> tuple[str, ...]:
    """Return the forbidden differences as text."""
    return tuple(each.text for each in differences(a, b, purpose) if each.blocking)


def unchecked(a: Conditions, b: Conditions) -> tuple[str, ...]:
    """Return the titles of the conditions that matter but are known for only one side."""
    return tuple(
        rule.title
        for rule in RULES
        if "compare" in rule.blocks and not rule.refuses and (a.get(rule.field) is None) != (b.get(rule.field) is None)
    )


def conditions_of_facts(facts: Mapping[str, Any]) -> dict[str, Value]:
    """Return the conditions from a worker's facts: what was actually loaded, not what was requested."""
    options = facts.get("options")
    found = {**(options if isinstance(options, Mapping) else {}), **facts, "inputs": facts.get("samples")}
    return {name: found[name] for name in FACT_FIELDS if isinstance(found.get(name), str | int | float | bool)}


def conditions_of_fingerprint(fingerprint: Mapping[str, Any]) -> dict[str, Value | None]:
    """Return every detail of a record's fingerprint that its later cells must share, by its path."""
    return {name: value for part in RESUMED_PARTS for name, value in _details(part, fingerprint.get(part))}


def _details(path: str, value: Any) -> Iterator[tuple[str, Value | None]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _details(f"{path}.{key}", each)
    elif isinstance(value, list | tuple):
        yield f"{path}.count", len(value)
        for number, each in enumerate(value):
            yield from _details(f"{path}.{number}", each)
    else:
        yield path, value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _same(left: Value | None, right: Value | None) -> bool:
    if left is None or right is None:
        return left is right
    if isinstance(left, str) or isinstance(right, str):
        return str(left).casefold() == str(right).casefold()
    return math.isclose(left, right, rel_tol=RELATIVE_TOLERANCE)


def _shown(value: Value | None) -> str:
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.7g}" if isinstance(value, float) else str(value)
