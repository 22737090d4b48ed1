from __future__ import annotations

import numpy as np
import pytest

from gputax.errors import ResultsError
from gputax.report.distributions import (
    CURVE_POINTS,
    cell_shape,
    furthest_fraction,
    latency_curve,
    rate_interval,
)
from gputax.stats.percentiles import floor_for, percentile
from tests.builders.documents import columns


def test_a_million_samples_become_a_few_hundred_points() -> None:
    curve = latency_curve(np.random.default_rng(1).exponential(1e6, 1_000_000))
    assert curve is not None
    assert len(curve.fractions) == len(curve.latency_ms) <= CURVE_POINTS
    assert curve.count == 1_000_000


def test_the_curve_follows_loadgens_percentiles() -> None:
    latency = np.random.default_rng(1).exponential(1e6, 20_000)
    curve = latency_curve(latency)
    assert curve is not None
    for fraction, latency_ms in list(zip(curve.fractions, curve.latency_ms, strict=True))[50::40]:
        assert latency_ms * 1e6 == percentile(latency, fraction)
    assert list(curve.latency_ms) == sorted(curve.latency_ms)


@pytest.mark.parametrize("count", [10, 64, 662, 4000])
def test_the_curve_ends_where_the_floor_forbids_more(count: int) -> None:
    curve = latency_curve(np.arange(1.0, count + 1))
    assert curve is not None
    assert floor_for(curve.fractions[-1]) <= count
    assert furthest_fraction(662) == pytest.approx(0.99, abs=1e-4)


def test_nine_samples_have_no_curve() -> None:
    assert latency_curve(np.ones(9)) is None


def test_equal_latencies_are_no_trouble() -> None:
    curve = latency_curve(np.full(500, 2e6))
    assert curve is not None
    assert set(curve.latency_ms) == {2.0}


def test_the_rates_interval_holds_the_truth() -> None:
    generator = np.random.default_rng(3)
    held = 0
    for _ in range(200):
        latency = generator.gamma(25.0, 4e4, 600).astype(np.int64)  # a mean of 1 ms
        end = np.cumsum(latency)
        interval = rate_interval(end - latency, end, np.full(600, 4.0))
        assert interval is not None
        held += interval[0] <= 4000.0 <= interval[1]
    assert held >= 0.9 * 200


def test_the_rate_counts_the_pauses_between_queries_too() -> None:
    start = np.arange(100) * 2_000_000
    interval = rate_interval(start, start + 1_000_000, np.ones(100))
    assert interval is not None
    assert 490 < interval[0] <= interval[1] < 512, "one query every 2 ms, although it takes 1 ms"


def test_four_queries_have_no_interval() -> None:
    assert cell_shape("offline", columns(4)).rate_ci95 is None


def test_an_empty_cell_has_no_shape() -> None:
    shape = cell_shape("offline", columns(0))
    assert shape.curve is None
    assert shape.rate_ci95 is None


def test_a_server_counts_from_the_scheduled_arrival() -> None:
    scheduled = np.arange(1000) * 1_000_000
    shape = cell_shape(
        "server", {"scheduled_ns": scheduled, "issued_ns": scheduled + 5, "end_ns": scheduled + 7_000_000}
    )
    assert shape.curve is not None
    assert set(shape.curve.latency_ms) == {7.0}


@pytest.mark.parametrize("missing", ["start_ns", "end_ns", "samples"])
def test_a_missing_column_is_named(missing: str) -> None:
    made = columns()
    del made[missing]
    with pytest.raises(ResultsError, match=missing):
        cell_shape("offline", made)


def test_columns_of_text_or_with_negative_latencies_are_refused() -> None:
    with pytest.raises(ResultsError, match="whole numbers"):
        cell_shape("offline", {**columns(), "end_ns": np.array(["x"] * 1000)})
    with pytest.raises(ResultsError, match="latency: sample 1 of 1000 is -"):
        cell_shape("offline", {**columns(), "start_ns": columns()["end_ns"] + 1})
