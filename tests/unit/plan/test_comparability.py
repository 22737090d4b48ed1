"""What must be equal before two cells may be compared."""

from __future__ import annotations

from typing import Any

import pytest

from gputax.plan.comparability import (
    RULES,
    Purpose,
    Rule,
    blocking_differences,
    conditions_of_facts,
    conditions_of_fingerprint,
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
    assert (found.rule, found.a, found.b, found.blocking) == (rule, "one", "two", "compare" in rule.blocks)
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
    assert {rule.field for rule in RULES if "compare" not in rule.blocks} == {
        "gpu_uuid", "gpu_driver", "gpu_ecc", "gpu_mig", "gpu_pcie_width", "cpu_model", "usable_cpus", "quota_cpus",
        "kernel", "distribution", "hypervisor", "judged_percentile", "sample_count", "seed_offset", "loadgen_version",
        "gputax_version", "program_sha256", "client", "input_tokens", "output_tokens",
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


def unequal(changes: dict[str, Any], purpose: Purpose) -> list[str]:
    found = blocking_differences(conditions_of_facts(FACTS), conditions_of_facts({**FACTS, **changes}), purpose)
    return [text.split(":")[0] for text in found]


class TestDuet:
    def test_equal_workers_may_be_compared(self) -> None:
        assert unequal({}, "duet") == []

    @pytest.mark.parametrize(
        "changes",
        [{"workload": "x"}, {"device": "cuda"}, {"threads": 4}, {"precision": "fp16"}, {"sample_count": 32},
         {"samples": "imagenet"}],
        ids=str,
    )  # fmt: skip
    def test_these_are_equal_even_where_the_engines_differ_on_purpose(self, changes: dict[str, Any]) -> None:
        assert len(unequal(changes, "duet")) == 1
        assert len(unequal(changes, "engine-b")) == 1

    @pytest.mark.parametrize(
        "changes",
        [{"engine": "torch"}, {"engine_version": "2"}, {"provider": "x"}, {"device_name": "x"},
         {"weights_sha256": "cd"}, {"options": {"spin": False, "copies": "included", "inter_op": 1}}],
        ids=str,
    )  # fmt: skip
    def test_these_may_differ_only_on_purpose(self, changes: dict[str, Any]) -> None:
        assert len(unequal(changes, "duet")) == 1
        assert unequal(changes, "engine-b") == []

    def test_what_only_one_side_knows_is_a_difference(self) -> None:
        assert unequal({"weights_sha256": None}, "duet") == ["sha256 of the weights"]
        assert unequal({"weights_sha256": None}, "compare") == []


FINGERPRINT: dict[str, Any] = {
    "host": {"cpu_model": "A", "kernel": "6", "hypervisor": None}, "cpu_allowance": {"affinity": [0, 1]}, "gpus": [],
    "packages": {"numpy": "2"}, "setups": {"resnet50": FACTS}, "neighbours": {"a": 1},
}  # fmt: skip


class TestResume:
    @staticmethod
    def changed(**parts: Any) -> tuple[str, ...]:
        before, now = (conditions_of_fingerprint(each) for each in (FINGERPRINT, {**FINGERPRINT, **parts}))
        return blocking_differences(before, now, "resume")

    def test_the_same_machine_goes_on(self) -> None:
        assert self.changed() == ()
        assert self.changed(neighbours={"a": 2}) == (), "not a condition of the machine"

    @pytest.mark.parametrize(
        ("part", "value", "text"),
        [
            ("host", {**FINGERPRINT["host"], "kernel": "7"}, "host.kernel was 6, is 7"),
            ("host", {**FINGERPRINT["host"], "hypervisor": "kvm"}, "host.hypervisor was not known, is kvm"),
            ("cpu_allowance", {"affinity": [0, 3]}, "cpu_allowance.affinity.1 was 1, is 3"),
            ("gpus", [{"uuid": "x"}], "gpus.count was 0, is 1"),
            ("packages", {"numpy": "3"}, "packages.numpy was 2, is 3"),
            ("setups", {"resnet50": {**FACTS, "threads": 4}}, "setups.resnet50.threads was 2, is 4"),
        ],
    )
    def test_a_detail_that_changed_is_named(self, part: str, value: Any, text: str) -> None:
        assert self.changed(**{part: value}) == (text,)

    def test_what_the_earlier_version_did_not_tell_is_no_difference(self) -> None:
        assert self.changed(host={**FINGERPRINT["host"], "new": 1}, setups={"resnet50": FACTS, "bert": {}}) == ()


@pytest.mark.parametrize("other", [{}, {"emulated": True}, {"emulated": False}])
@pytest.mark.parametrize("purpose", ["compare", "duet", "engine-b"])
def test_an_emulated_hypervisor_is_comparable_with_nothing(other: dict[str, Any], purpose: Purpose) -> None:
    assert "proves function" in blocking_differences({"emulated": True}, other, purpose)[0]
    assert "proves function" in blocking_differences(other, {"emulated": True}, purpose)[0]
    assert unchecked({"emulated": True}, {}) == ()


def test_the_fact_that_it_is_emulated_is_a_condition() -> None:
    assert conditions_of_facts({**FACTS, "emulated": True})["emulated"] is True
    assert "emulated" not in conditions_of_facts(FACTS)
