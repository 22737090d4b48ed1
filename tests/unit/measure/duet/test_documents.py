"""What stands in a duet's document beside its pairs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gputax.measure.duet.documents import busy_hosts, doubt_of


def side(environment: str, percent: float, *disturbed: str) -> Any:
    spec = SimpleNamespace(label=environment, environment=environment)
    return SimpleNamespace(spec=spec, others_percent_of_core=percent, disturbed=disturbed, error_rate=0.0)


def test_a_quiet_host_is_not_worth_a_word() -> None:
    assert busy_hosts(side("bare", 9.0), side("k8s", 0.0)) == []


@pytest.mark.parametrize(
    ("a", "b", "shifts"),
    [("bare", "k8s", True), ("bare", "container", True), ("bare", "bare+proxy", False), ("k8s", "k8s+xen", False)],
)
def test_a_busy_host_shifts_the_result_only_where_the_sides_are_scheduled_apart(a: str, b: str, shifts: bool) -> None:
    (notice,) = busy_hosts(side(a, 190.0), side(b, 0.0))
    assert notice.text.startswith(f"{a}: other processes used 190 % of one core")
    assert ("Measure on an idle machine" in notice.text) is shifts
    assert notice.value == 190.0
    assert bool(doubt_of(side(a, 190.0), side(b, 0.0))) is shifts


def test_on_a_quiet_host_nothing_is_in_doubt() -> None:
    assert doubt_of(side("bare", 9.0), side("k8s", 9.0)) == ""
    assert "190 % of one core" in doubt_of(side("bare", 9.0), side("k8s", 190.0))


def test_a_machine_beyond_the_limits_of_pairs_is_in_doubt_whatever_the_sides_are() -> None:
    reason = "the hypervisor withheld 31.0 % of this worker's CPU time (steal, limit 20 %)"
    assert doubt_of(side("bare", 9.0), side("bare+proxy", 9.0, reason)) == f"bare+proxy: {reason}"
