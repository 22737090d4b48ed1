"""The figures of models on the software device are taken from what was counted, in the unit that the goals have."""

from __future__ import annotations

from typing import Any

import pytest

from bench.first_run import Spent, compile_time
from bench.goals import GOALS
from bench.models import calls_between, overhead_figures
from tests.builders.documents import comparison, metric


def test_the_duets_percent_become_parts_with_their_interval() -> None:
    rows = (
        metric(other="bare+proxy", percent=0.4, metric="latency_p50", ci95_percent=(-0.2, 1.0)),
        metric(other="bare+proxy", percent=2.0, metric="latency_mean", ci95_percent=(None, 5.0)),
    )
    figures = overhead_figures(comparison(*rows), "proxy_resnet50")
    assert figures["proxy_resnet50_overhead"] == pytest.approx(0.004)
    assert figures["proxy_resnet50_overhead_ci95"] == pytest.approx([-0.002, 0.01])
    assert figures["proxy_resnet50_mean_overhead"] == pytest.approx(0.02)
    assert "proxy_resnet50_mean_overhead_ci95" not in figures, "one bound is not an interval"


def test_a_metric_that_the_duet_did_not_give_is_not_a_figure() -> None:
    assert overhead_figures(comparison(), "proxy_resnet50")["proxy_resnet50_overhead"] is None


def status(calls: dict[str, int], posted: int, replayed: int) -> dict[str, Any]:
    return {"tenants": [{"calls": calls, "posted_calls": posted, "replayed_steps": replayed}]}


def test_calls_of_one_inference_are_answered_or_posted() -> None:
    before = status({"cuModuleLoadData": 27, "cuCtxSynchronize": 3, "cuGraphLaunch": 1, "gputaxWaitPolicy": 1}, 5, 51)
    after = status(
        {"cuModuleLoadData": 27, "cuCtxSynchronize": 13, "cuGraphLaunch": 11, "gputaxWaitPolicy": 4}, 15, 561
    )
    figures = calls_between(before, after, 10)
    assert figures["proxy_calls_per_inference"] == 2
    assert figures["proxy_calls_per_inference_posted"] == 1
    assert figures["proxy_calls_per_inference_answered"] == 1
    assert figures["proxy_calls_per_inference_by_name"] == {"cuCtxSynchronize": 1, "cuGraphLaunch": 1}
    assert figures["proxy_replayed_steps_per_inference"] == 51


def test_compiling_is_what_the_first_run_costs_beyond_a_later_one() -> None:
    found = compile_time(Spent(0.5, 0.4), Spent(14.0, 8.0), later=Spent(2.7, 1.5), later_runs=3)
    assert (found.cpu_s, found.wall_s) == pytest.approx((13.6, 7.9))


@pytest.mark.parametrize(
    "key",
    [
        "proxy_resnet50_overhead",
        "proxy_launch_us",
        "soft_resnet50_cpu_s",
        "soft_bert_large_cpu_s",
        "soft_compile_cold_s",
        "soft_compile_cached_s",
    ],
)
def test_each_has_its_goal(key: str) -> None:
    assert key in {goal.key for goal in GOALS}
