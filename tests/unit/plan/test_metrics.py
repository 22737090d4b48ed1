"""A metric is one row: where it is judged, paired and shown first is read from there."""

from __future__ import annotations

import pytest

from gputax.plan.budgets import parse_budget
from gputax.plan.cells import SCENARIOS
from gputax.plan.metrics import METRICS, duet_metrics, headline_order, judged_metrics
from gputax.plan.workloads import MICRO
from gputax.results.documents.run import Benchmark


@pytest.mark.parametrize(
    ("scenario", "judged", "paired", "headline"),
    [
        ("offline", ("throughput",), ("throughput",), "throughput"),
        ("saturate", ("throughput",), ("throughput", "latency_p50"), "throughput"),
        (
            "server",
            ("latency_p50", "latency_p90", "latency_p99", "over_bound_share"),
            ("latency_p50", "latency_mean", "latency_p90", "latency_p99"),
            "latency_p99",
        ),
        (
            "single-stream",
            ("latency_mean", "latency_p50", "latency_p90", "latency_p99"),
            ("latency_p50", "latency_mean", "latency_p90", "latency_p99"),
            "latency_p90",
        ),
        (
            "multi-stream",
            ("latency_mean", "latency_p50", "latency_p90", "latency_p99"),
            ("latency_p50", "latency_mean", "latency_p90", "latency_p99"),
            "latency_p99",
        ),
    ],
)
def test_what_each_scenario_is_judged_by(
    scenario: str, judged: tuple[str, ...], paired: tuple[str, ...], headline: str
) -> None:
    assert judged_metrics(scenario) == judged
    assert duet_metrics(scenario) == paired
    assert headline_order(scenario)[0] == headline


def test_operations_are_judged_as_single_requests() -> None:
    assert judged_metrics(MICRO) == ("throughput", "latency_p50", "latency_p90", "latency_p99")


def test_every_scenario_has_a_metric_to_judge_and_to_pair() -> None:
    for scenario in SCENARIOS:
        assert judged_metrics(scenario), scenario
        assert scenario in METRICS[duet_metrics(scenario)[0]].primary, scenario


def test_a_scenario_that_a_file_does_not_name_is_judged_by_all_there_is() -> None:
    assert judged_metrics("unknown") == tuple(METRICS)


def test_a_budget_adds_a_latency_of_queries_and_never_one_of_batches() -> None:
    assert judged_metrics("server", ["latency_p95", "throughput"])[-1] == "latency_p95"
    assert judged_metrics("offline", ["latency_p99", "throughput"]) == ("throughput",)


def test_without_its_own_headline_a_scenario_is_summarised_by_the_mean() -> None:
    assert headline_order("unknown")[0] == "latency_mean"
    assert set(headline_order("unknown")) == set(METRICS)


def test_every_metric_is_stored_under_a_key_of_the_record() -> None:
    assert {metric.stored for metric in METRICS.values()} <= set(Benchmark.model_fields)


def test_metrics_of_tokens_are_judged_and_paired_only_where_there_are_tokens() -> None:
    assert "ttft_p50" not in judged_metrics("server")
    judged = judged_metrics("server", tokens=True)
    assert {"ttft_p50", "ttft_p90", "ttft_p99", "tpot_p50", "tpot_p90", "tpot_p99", "itl_p99"} <= set(judged)
    paired = duet_metrics("server", ("latency", "ttft", "tpot", "itl"))
    assert paired[:3] == ("latency_p50", "ttft_p50", "tpot_p50")
    assert set(duet_metrics("server")).isdisjoint(name for name in METRICS if METRICS[name].series != "latency")


def test_a_budget_may_name_any_percentile_of_tokens() -> None:
    assert "itl_p50" in judged_metrics("server", ["itl_p50"], tokens=True)
    assert "itl_p50" not in judged_metrics("server", ["itl_p50"])


def test_short_names_of_token_metrics_are_their_medians() -> None:
    assert parse_budget("ttft=5ms")[0] == "ttft_p50"
    assert parse_budget("tpot=3%")[0] == "tpot_p50"
    assert parse_budget("k8s:ttft=1ms")[0] == "k8s:ttft_p50"
