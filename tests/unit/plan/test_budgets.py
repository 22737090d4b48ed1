"""Budgets: the users' targets as defaults, and every way to change them."""

from __future__ import annotations

import pytest

from gputax.errors import UsageError
from gputax.plan.budgets import (
    Budgets,
    budgets_from_table,
    parse_budget,
    parse_budgets,
    unused_budgets,
    unused_scopes,
)


@pytest.mark.parametrize(
    ("base", "other", "percent"),
    [
        ("bare", "k8s", 1.0),
        ("bare", "container", 1.0),
        ("bare", "bare+proxy", 5.0),
        ("k8s", "k8s+proxy", 5.0),
        ("bare", "k8s+proxy", 5.0),
        ("bare", "k8s+xen", 10.0),
        ("k8s+proxy", "k8s+proxy+xen", 10.0),
        ("bare", "bare", 5.0),
        ("bare", "ssh:host", 5.0),
        ("k8s+xen", "bare", 5.0),
        ("unknown", "unknown", 5.0),
    ],
)
def test_the_largest_added_layer_gives_the_budget(base: str, other: str, percent: float) -> None:
    budget = Budgets().for_metric(base, other, "throughput")
    assert (budget.value, budget.unit) == (percent, "%")


def test_p99_may_grow_by_two_milliseconds_whatever_the_layer() -> None:
    for other in ("k8s", "k8s+xen"):
        budget = Budgets().for_metric("bare", other, "latency_p99")
        assert (budget.value, budget.unit) == (2, "ms")


@pytest.mark.parametrize(
    ("other", "request_ms", "value", "unit"),
    [
        ("k8s", 12.0, 2.0, "ms"),
        ("k8s", 1.0, 2.0, "ms"),
        ("k8s", None, 2.0, "ms"),
        ("k8s", 0.14, 2.0, "%"),
        ("bare+proxy", 0.14, 10.0, "%"),
        ("k8s+xen", 0.99, 20.0, "%"),
    ],
)
def test_p99_of_microseconds_has_a_percentage(other: str, request_ms: float | None, value: float, unit: str) -> None:
    budget = Budgets().for_metric("bare", other, "latency_p99").at(request_ms)
    assert (budget.value, budget.unit) == (value, unit)


def test_a_p99_budget_of_the_user_is_for_requests_of_any_size() -> None:
    for text in ("p99=2ms", "2ms", "k8s:p99=2ms"):
        budget = parse_budgets((text,)).for_metric("bare", "k8s", "latency_p99").at(0.14)
        assert (budget.value, budget.unit) == (2.0, "ms"), text
    changed = parse_budgets(("k8s=3%",)).for_metric("bare", "k8s", "latency_p99").at(0.14)
    assert (changed.value, changed.unit) == (6.0, "%")
    assert "twice the 3 % of the mean, given by --budget" in changed.source


def test_an_environment_and_a_metric_of_it_have_budgets_of_their_own() -> None:
    budgets = parse_budgets(("k8s=2%", "k8s+proxy=7%", "kubernetes:p99=1ms", "proxy:throughput=4%", "p50=9%"))
    for base, other, metric, expected in (
        ("bare", "k8s", "throughput", (2.0, "%")),
        ("bare", "k8s", "latency_p99", (1.0, "ms")),
        ("bare", "k8s", "latency_p50", (9.0, "%")),
        ("bare", "k8s+proxy", "latency_mean", (7.0, "%")),
        ("bare", "k8s+proxy", "throughput", (4.0, "%")),
        ("bare", "k8s+proxy", "latency_p99", (2.0, "ms")),
        ("bare", "bare+proxy", "throughput", (4.0, "%")),
        ("bare", "k8s+xen", "throughput", (10.0, "%")),
    ):
        budget = budgets.for_metric(base, other, metric)
        assert (budget.value, budget.unit) == expected, (other, metric)
    assert budgets.named("bare", "k8s") == {"latency_p50", "latency_p99"}
    assert budgets.named("bare", "k8s+xen") == {"latency_p50"}


def test_a_budget_for_a_layer_that_is_not_compared_is_said() -> None:
    budgets = parse_budgets(("k8s=1%", "xen=8%", "k8s+proxy:p99=10%"))
    texts = [notice.text for notice in unused_scopes(budgets, [("bare", "k8s")])]
    assert [text.split(" was")[0] for text in texts] == ["the budget for k8s+proxy", "the budget for xen"]
    assert unused_scopes(budgets, [("bare", "k8s+proxy"), ("bare", "k8s+xen")]) == []
    assert unused_scopes(budgets_from_table({"xen": "8%"}, "mine.toml"), [("bare", "k8s")]) == []


def test_the_source_says_where_a_budget_comes_from() -> None:
    assert Budgets().for_metric("bare", "k8s+proxy", "throughput").source == "budget of the layer proxy"
    assert "no layer" in Budgets().for_metric("bare", "bare", "throughput").source
    assert parse_budget("5%")[1].source == "given by --budget"


@pytest.mark.parametrize(
    ("text", "name", "value", "unit"),
    [
        ("5%", None, 5.0, "%"),
        ("5 %", None, 5.0, "%"),
        ("+2.5%", None, 2.5, "%"),
        ("2ms", None, 2.0, "ms"),
        ("500us", None, 0.5, "ms"),
        ("500\u00b5s", None, 0.5, "ms"),
        ("500\u03bcs", None, 0.5, "ms"),
        ("0.1s", None, 100.0, "ms"),
        ("latency_p99=2ms", "latency_p99", 2.0, "ms"),
        ("latency_p99 = 3%", "latency_p99", 3.0, "%"),
        ("throughput=0%", "throughput", 0.0, "%"),
        ("proxy=3%", "proxy", 3.0, "%"),
        ("k8s+proxy=3%", "k8s+proxy", 3.0, "%"),
        ("p99=2ms", "latency_p99", 2.0, "ms"),
        ("hypervisor=8%", "xen", 8.0, "%"),
        ("k8s+proxy:p99=3%", "k8s+proxy:latency_p99", 3.0, "%"),
        ("over_bound_share=2%", "over_bound_share", 2.0, "%"),
    ],
)
def test_what_can_be_written(text: str, name: str | None, value: float, unit: str) -> None:
    found, budget = parse_budget(text)
    assert (found, budget.unit) == (name, unit)
    assert budget.value == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "5", "%", "-5%", "five%", "5%%", "nan%", "infms", "=5%", "5 minutes", "1,5%"])
def test_what_is_no_budget(text: str) -> None:
    with pytest.raises(UsageError, match="is not a budget"):
        parse_budget(text)


def test_a_wrong_name_gets_the_nearest_right_one() -> None:
    with pytest.raises(UsageError, match="unknown metric, layer or environment") as raised:
        parse_budget("latency_p98=2ms")
    assert "did you mean 'latency_p9" in raised.value.next_step


@pytest.mark.parametrize(
    "text", ["bare=1%", "k9s=1%", "bare:p99=2ms", "k8s:p98=2ms", "throughput:p99=2ms", "k8s+prox=1%"]
)
def test_a_name_that_is_neither_metric_nor_layer_nor_environment_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"unknown metric, layer or environment|names two metrics"):
        parse_budget(text)


@pytest.mark.parametrize(
    "text", ["throughput=2ms", "host_to_device=2ms", "proxy=2ms", "over_bound_share=2ms", "k8s:throughput=2ms"]
)
def test_only_latencies_have_milliseconds(text: str) -> None:
    with pytest.raises(UsageError, match="no budget in milliseconds"):
        parse_budget(text)


@pytest.mark.parametrize("texts", [("5%", "3%"), ("2ms", "3ms"), ("throughput=1%", "throughput=2%")])
def test_nothing_is_given_twice(texts: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="two budgets"):
        parse_budgets(texts)


def test_without_a_name_a_budget_replaces_the_defaults_of_its_unit_only() -> None:
    budgets = parse_budgets(("3%",))
    assert budgets.for_metric("bare", "k8s+xen", "throughput").value == 3.0
    assert budgets.for_metric("bare", "k8s", "latency_p50").value == 3.0
    assert budgets.for_metric("bare", "k8s", "latency_p99").unit == "ms"
    assert budgets.for_metric("bare", "k8s", "over_bound_share").value == 1.0
    budgets = parse_budgets(("7ms",))
    assert budgets.for_metric("bare", "k8s", "latency_p99").value == 7.0
    assert budgets.for_metric("bare", "k8s", "latency_p50").value == 1.0


def test_the_most_specific_word_counts() -> None:
    budgets = parse_budgets(("3%", "proxy=4%", "throughput=6%", "latency_p99=9%"))
    assert budgets.for_metric("bare", "k8s+proxy", "throughput").value == 6.0
    assert budgets.for_metric("bare", "k8s+proxy", "latency_p50").value == 4.0
    assert budgets.for_metric("bare", "k8s", "latency_p50").value == 3.0
    assert (budgets.for_metric("bare", "k8s", "latency_p99").value, budgets.metrics["latency_p99"].unit) == (9.0, "%")


def test_a_changed_layer_does_not_hide_a_larger_one() -> None:
    assert parse_budgets(("proxy=4%",)).for_metric("bare", "k8s+proxy+xen", "throughput").value == 10.0
    assert parse_budgets(("xen=4%",)).for_metric("bare", "k8s+xen", "throughput").value == 4.0
    assert parse_budgets(("mig=20%",)).for_metric("bare", "k8s+mig", "throughput").value == 20.0


def test_the_command_line_counts_before_the_suite() -> None:
    suite = budgets_from_table({"default": "8%", "latency_p99": "1ms", "proxy": "2%"}, "mine.toml [budget]")
    both = parse_budgets(("latency_p99=5ms",)).over(suite)
    assert both.for_metric("bare", "bare", "throughput").value == 8.0
    assert both.for_metric("bare", "bare+proxy", "throughput").value == 2.0
    assert both.for_metric("bare", "bare", "latency_p99").value == 5.0
    assert suite.for_metric("bare", "bare", "throughput").source == "given by mine.toml [budget]"
    assert Budgets().over(suite) == suite


def test_a_word_for_all_on_the_command_line_counts_before_the_suites_names() -> None:
    suite = budgets_from_table({"throughput": "1%", "latency_p99": "1ms", "proxy": "2%"}, "mine.toml [budget]")
    both = parse_budgets(("10%",)).over(suite)
    assert both.for_metric("bare", "bare+proxy", "throughput").value == 10.0
    assert both.for_metric("bare", "bare+proxy", "latency_mean").value == 10.0
    assert both.for_metric("bare", "bare+proxy", "latency_p99").value == 1.0, "10 % says nothing of milliseconds"
    assert set(both.metrics) == {"throughput", "latency_p99"}, "what the suite names stays named"
    assert parse_budgets(("3ms",)).over(suite).for_metric("bare", "bare", "latency_p99").value == 3.0


def test_an_unused_budget_is_a_mistake_on_the_command_line_only() -> None:
    named = parse_budgets(("throughput=1%", "latency_p99=2ms")).metrics
    assert [notice.code for notice in unused_budgets(named, ["latency_p99"])] == ["unused-budget"]
    assert unused_budgets(budgets_from_table({"throughput": "1%"}, "mine.toml").metrics, []) == []


@pytest.mark.parametrize("table", [{"default": 5}, {"default": "five"}, {"througput": "5%"}])
def test_a_suite_with_a_wrong_budget_is_refused_with_its_place(table: dict[str, object]) -> None:
    with pytest.raises(UsageError) as raised:
        budgets_from_table(table, "mine.toml [budget]")
    assert raised.value.where == "mine.toml [budget]"
