"""Goodput counts what succeeded and kept every bound; few failures warn, many make a result invalid."""

from __future__ import annotations

import pytest

from gputax.measure.goodput import goodput_bounds, kept_bounds
from gputax.measure.run.cell import failure_notices
from gputax.measure.summary import summarise
from tests.unit.measure.test_tokens import columns

LOG = {"failed_requests.tsv": "500\t1\tHTTP 500 Internal Server Error\tas programmed\n"}


def test_bounds_that_are_zero_are_not_set() -> None:
    assert goodput_bounds(0.0, {}) == {}
    assert goodput_bounds(50.0, {"slo_ttft_ms": 10.0, "slo_tpot_ms": 0.0}) == {"latency": 50.0, "ttft": 10.0}


@pytest.mark.parametrize(
    ("bounds", "kept"),
    [({}, 98), ({"latency": 90}, 0), ({"latency": 92}, 98), ({"ttft": 49}, 0), ({"ttft": 50}, 98), ({"tpot": 9}, 0)],
)
def test_every_bound_must_be_kept(bounds: dict[str, float], kept: int) -> None:
    assert kept_bounds("server", columns(failed=2), bounds) == kept


@pytest.mark.parametrize(("failed", "code"), [(0, None), (1, "requests-failed"), (2, "too-many-failed")])
def test_more_than_one_per_cent_is_too_many(failed: int, code: str | None) -> None:
    notices = failure_notices(summarise("server", columns(failed=failed)), LOG)
    assert [notice.code for notice in notices] == ([code] if code else [])
    if code:
        assert f"{failed} of 100 requests failed" in notices[0].text
        assert "HTTP 500" in notices[0].text
