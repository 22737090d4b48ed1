"""Jain's index on shares whose answer is known."""

from __future__ import annotations

import pytest

from gputax.errors import ResultsError
from gputax.stats.shared import jain_index


@pytest.mark.parametrize(
    ("shares", "index"),
    [([5.0], 1.0), ([2.0] * 7, 1.0), ([1.0, 0.0, 0.0, 0.0], 0.25), ([3.0, 1.0], 0.8), ([0.0, 0.0], 1.0)],
)
def test_known_shares(shares: list[float], index: float) -> None:
    assert jain_index(shares) == pytest.approx(index)


def test_the_unit_does_not_matter() -> None:
    assert jain_index([1.0, 2.0, 3.0]) == pytest.approx(jain_index([1e6, 2e6, 3e6]))


def test_a_share_that_is_no_number_is_refused() -> None:
    with pytest.raises(ResultsError, match="tenant 2 of 2 is nan"):
        jain_index([1.0, float("nan")])
