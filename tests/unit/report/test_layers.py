from __future__ import annotations

import math

import pytest

from gputax.report.layers import waterfalls
from gputax.report.story import report_on
from tests.builders.documents import comparison, metric, row, side


def test_a_chain_adds_up() -> None:
    (found,) = waterfalls(
        [row("bare", "k8s", 1.0), row("k8s", "k8s+proxy", 5.0), row("k8s+proxy", "k8s+proxy+xen", 10.0)]
    )
    assert found.root == "bare"
    assert [(step.label, step.parent) for step in found.steps] == [
        ("k8s", "bare"), ("k8s+proxy", "k8s"), ("k8s+proxy+xen", "k8s+proxy"),
    ]  # fmt: skip
    assert [step.own_percent for step in found.steps] == pytest.approx([1.0, 5.0, 10.0])
    assert found.steps[-1].end_percent == pytest.approx(100 * (1.01 * 1.05 * 1.10 - 1))
    for below, above in zip(found.steps, found.steps[1:], strict=False):
        assert above.start_percent == pytest.approx(below.end_percent)


def test_lost_throughput_adds_up_as_what_is_left() -> None:
    """1000 -> 990 -> 950 samples/s: the proxy loses 40 of 990, not 5 % less 1 %."""
    lost = {"metric": "throughput", "loss": "throughput"}
    (found,) = waterfalls(
        [
            row("bare", "k8s", 1.0, ci95_percent=(0.5, 1.5), **lost),
            row("bare", "k8s+proxy", 5.0, ci95_percent=(4.0, 6.0), **lost),
        ]
    )
    pod, proxy = found.steps
    assert (pod.start_percent, pod.end_percent) == pytest.approx((0.0, 1.0))
    assert pod.end_ci95 == pytest.approx((0.5, 1.5))
    assert (proxy.start_percent, proxy.end_percent) == pytest.approx((1.0, 5.0))
    assert proxy.own_percent == pytest.approx(100 * (1 - 950 / 990))
    low, high = proxy.end_ci95
    assert low is not None
    assert high is not None
    assert low < 5.0 < high


def test_two_layers_on_one_pod_both_stand_on_the_pod() -> None:
    (found,) = waterfalls([row("bare", "k8s", 1.0), row("k8s", "k8s+proxy", 5.0), row("k8s", "k8s+xen", 10.0)])
    assert [(step.label, step.start_percent) for step in found.steps] == [
        ("k8s", 0.0), ("k8s+proxy", pytest.approx(1.0)), ("k8s+xen", pytest.approx(1.0)),
    ]  # fmt: skip


def test_against_one_base_the_own_cost_is_derived_and_not_judged() -> None:
    (found,) = waterfalls(
        [row("bare", "k8s", 1.0, ci95_percent=(0.5, 1.5)), row("bare", "k8s+proxy", 6.0, ci95_percent=(5.0, 7.0))]
    )
    pod, proxy = found.steps
    assert not pod.derived
    assert proxy.derived
    assert proxy.verdict is None
    assert proxy.parent == "k8s"
    assert proxy.own_percent == pytest.approx(100 * (1.06 / 1.01 - 1))
    # MOVER on logarithms, by hand.
    own = math.log(1.06 / 1.01)
    low = own - math.hypot(math.log(1.06 / 1.05), math.log(1.015 / 1.01))
    high = own + math.hypot(math.log(1.07 / 1.06), math.log(1.01 / 1.005))
    assert proxy.own_ci95 == pytest.approx((100 * math.expm1(low), 100 * math.expm1(high)))


def test_a_derived_step_without_intervals_has_none() -> None:
    (found,) = waterfalls([row("bare", "k8s", 1.0, ci95_percent=None), row("bare", "k8s+proxy", 6.0)])
    assert found.steps[1].own_ci95 == (None, None)


def test_a_layer_whose_parent_was_not_measured_stands_on_the_nearest() -> None:
    (found,) = waterfalls([row("bare", "k8s+proxy+xen", 12.0), row("bare", "k8s+proxy", 5.0)])
    assert [(step.label, step.parent) for step in found.steps] == [
        ("k8s+proxy", "bare"),
        ("k8s+proxy+xen", "k8s+proxy"),
    ]


def test_comparisons_that_share_no_side_do_not_add_up() -> None:
    found = waterfalls([row("bare", "container", 0.5), row("k8s", "k8s+proxy", 5.0)])
    assert [each.root for each in found] == ["bare", "k8s"]


@pytest.mark.parametrize("percent", [None, math.nan, math.inf, -100.0])
def test_what_has_no_number_has_no_step(percent: float | None) -> None:
    assert waterfalls([row("bare", "k8s", percent, ci95_percent=None)]) == ()


def test_what_is_not_comparable_has_no_step() -> None:
    assert waterfalls([row("bare", "k8s", 3.0, verdict="not comparable")]) == ()


def test_of_two_comparisons_of_the_same_sides_the_paired_one_counts() -> None:
    for rows in ([row("bare", "k8s", 9.0, paired=False), row("bare", "k8s", 1.0)],
                 [row("bare", "k8s", 1.0), row("bare", "k8s", 9.0, paired=False)]):  # fmt: skip
        (found,) = waterfalls(rows)
        assert [step.own_percent for step in found.steps] == pytest.approx([1.0])


def test_a_gain_goes_down() -> None:
    (found,) = waterfalls([row("bare", "k8s", -2.0)])
    assert found.steps[0].end_percent == pytest.approx(-2.0)


def test_of_two_equally_bare_sides_the_base_is_the_root() -> None:
    (found,) = waterfalls([row("ssh:a", "bare", 1.0)])
    assert found.root == "ssh:a"


def test_layers_that_nothing_puts_on_each_other_have_a_table_and_no_waterfall() -> None:
    unknown = {"environment": "unknown", "format": "text"}
    sides = (side("base", **unknown), side("k8s", **unknown), side("proxy", **unknown))
    made = comparison(metric("base", "k8s", 1.0), metric("base", "proxy", 5.0), sides=sides, kind="compare")
    (section,) = [section for section in report_on(made).sections if section.name == "layers"]
    assert section.charts == (), "all bars would begin at the base, and the caption says otherwise"
    assert [row[1].text for row in section.tables[0].rows] == ["base", "base"]
