"""The bench of the client measures what it says: an overhead that is put in comes out."""

from __future__ import annotations

import pytest

from bench.client import Pair, figures_of


def test_pairs_with_a_scrape_count_by_their_share() -> None:
    pairs = [Pair(0.05, 0.0505, False)] * 18 + [Pair(0.05, 0.5, False), Pair(0.05, 0.055, True)]
    figures = figures_of(pairs, [1.0, 2.0, 9.0])
    assert figures["client_overhead"] == pytest.approx(0.95 * 1.01 + 0.05 * 1.10), "and a burst of another not at all"
    low, high = figures["client_overhead_ci95"]
    assert low <= figures["client_overhead"] <= high
    assert (figures["scrape_ms"], figures["client_overhead_pairs"]) == (2.0, 20)
