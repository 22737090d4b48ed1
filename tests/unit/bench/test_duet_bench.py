"""The bench of the duet: the time to a verdict is the median of several duets, with all of them listed."""

from __future__ import annotations

from bench.duet import seconds_to_pass, verdict_of
from tests.builders.documents import comparison, metric


def test_one_slow_duet_does_not_decide() -> None:
    found = seconds_to_pass(
        5, [(91.0, "pass"), (38.0, "pass"), (35.0, "pass"), (120.0, "inconclusive"), (40.0, "pass")]
    )
    assert found == {
        "duet_seconds_5_percent": 40.0,
        "duet_seconds_5_percent_each": [91.0, 38.0, 35.0, None, 40.0],
        "duet_verdicts_5_percent": ["pass", "pass", "pass", "inconclusive", "pass"],
    }


def test_where_most_do_not_pass_there_is_no_time() -> None:
    slow = [(120.0, "inconclusive"), (60.0, "fail"), (30.0, "pass")]
    assert seconds_to_pass(5, slow)["duet_seconds_5_percent"] is None


def test_the_verdict_is_that_of_the_metrics_that_decide() -> None:
    asked, other = metric(verdict="pass"), metric(metric="latency_p99", verdict="inconclusive", decides=False)
    assert verdict_of(comparison(asked, other)) == "pass"
    assert verdict_of(comparison(asked, other.model_copy(update={"decides": True}))) == "inconclusive"
    assert verdict_of(comparison(asked, metric(verdict="fail"))) == "fail"
