"""What must be equal before two cells may be compared."""

from __future__ import annotations

import pytest

from gputax.plan.comparability import (
    RULES,
    Rule,
    blocking_differences,
    conditions_of_facts,
    differences,
    unchecked,
)

FACTS = {
    "engine": "onnx", "engine_version": "1.31.1", "provider": "CPUExecutionProvider", "threads": 2, "precision": "fp32",
    "options": {"provider": "auto", "copies": "included", "spin": True, "inter_op": 1}, "device": "cpu",
    "workload": "resnet50", "sample_count": 64, "samples": "synthetic", "weights_sha256": "ab", "providers": ["x"],
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.field)
def test_each_rule_sees_its_own_difference(rule: Rule) -> None:
    (found,) = differences({rule.field: "one"}, {rule.field: "two"})
    assert (found.field, found.a, found.b, found.blocking) == (rule.field, "one", "two", rule.blocking)
    assert found.text.startswith(f"{rule.title}: one and two")
    assert differences({rule.field: "one"}, {rule.field: "one"}) == ()


@pytest.mark.parametrize(
    "field",
    ["workload", "scenario", "batch_size", "engine", "engine_version", "provider", "precision", "threads", "spin",
     "copies", "weights_sha256", "device", "device_name", "target_qps", "latency_bound_ms", "inputs", "governors",
     "gpu_sm_clock_max_mhz", "gpu_power_limit_w", "counted", "tenants"],
)  # fmt: skip
def test_these_forbid_a_comparison(field: str) -> None:
    assert differences({field: 1}, {field: 2})[0].blocking


def test_these_alone_are_only_told_because_the_layer_may_change_them_or_they_weigh_little() -> None:
    assert {rule.field for rule in RULES if not rule.blocking} == {
        "gpu_uuid", "gpu_driver", "gpu_ecc", "gpu_mig", "gpu_pcie_width", "cpu_model", "usable_cpus", "quota_cpus",
        "kernel", "distribution", "hypervisor", "judged_percentile", "sample_count", "seed_offset", "loadgen_version",
        "gputax_version",
    }  # fmt: skip


def test_what_one_side_does_not_know_is_no_difference_but_unchecked() -> None:
    assert differences({"threads": 2}, {"threads": None, "kernel": "6"}) == ()
    assert unchecked({"threads": 2, "kernel": "6"}, {}) == ("threads",)
    assert unchecked({}, {"threads": 2}) == ("threads",)
    assert unchecked({}, {}) == ()
    assert unchecked({"threads": 2}, {"threads": 4}) == ()


def test_rates_are_equal_as_far_as_loadgen_writes_them() -> None:
    assert differences({"target_qps": 1485.734}, {"target_qps": 1485.73}) == ()
    assert differences({"target_qps": 1485.0}, {"target_qps": 1486.0})[0].blocking


def test_names_differ_by_more_than_their_case() -> None:
    assert differences({"device_name": "Tesla T4"}, {"device_name": "TESLA T4"}) == ()
    assert differences({"spin": True}, {"spin": False})[0].text == "spinning threads: yes and no"


def test_the_way_out_is_said() -> None:
    assert "--threads" in differences({"threads": 2}, {"threads": 4})[0].text
    assert "--qps" in differences({"target_qps": 1.0}, {"target_qps": 2.0})[0].text


def test_facts_of_a_worker_become_conditions() -> None:
    found = conditions_of_facts(FACTS)
    assert found["inputs"] == "synthetic"
    assert found["spin"] is True
    assert found["provider"] == "CPUExecutionProvider", "what was loaded counts, not the option that asked for it"
    assert "providers" not in found
    assert conditions_of_facts({"options": "broken", "threads": [2]}) == {}


def test_two_workers_are_held_against_each_other() -> None:
    assert blocking_differences(FACTS, FACTS) == ()
    assert blocking_differences(FACTS, {**FACTS, "sample_count": 32}) == ()
    other = {**FACTS, "threads": 4, "options": {**FACTS["options"], "spin": False}}  # type: ignore[dict-item]
    found = blocking_differences(FACTS, other)
    assert [text.split(":")[0] for text in found] == ["threads", "spinning threads"]
