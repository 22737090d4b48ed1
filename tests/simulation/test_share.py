"""The intervals of `gputax share` hold the value of an undisturbed repeat, in every world of the simulated machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from scipy.stats import trim_mean

from gputax.measure.share.documents import shared_rows
from gputax.results.documents.sharing import SharedCell
from tests.builders.shared_machine import SLOW_WANDER, STALLS_AT_P99, WORLDS, World, experiment, published, stock

Publishes = Callable[[str, int], None]
Key = tuple[str, int]
FIGURES: Mapping[str, Callable[[SharedCell], float | None]] = {
    "mean_ms": lambda cell: cell.mean_ms,
    "p50_ms": lambda cell: cell.p50_ms,
    "p99_ms": lambda cell: cell.p99_ms,
    "worst_tenant_mean_ms": lambda cell: max(each.mean_ms for each in cell.results),
    "aggregate_per_s": lambda cell: cell.aggregate_per_s,
}
FULL, QUICK = 1000, 40


def truths(world: World) -> dict[Key, float]:
    """Return the true figures of 1 and 4 tenants, and the slowdown."""
    found: dict[Key, float] = {}
    for tenants in (1, 4):
        for name, of in FIGURES.items():
            values = [of(cell) for cell in stock(world.within_cell(), tenants)]
            known = [math.log(value) for value in values if value is not None]
            if len(known) == len(values):
                # Percentiles of a few windows without a stall are far from the others: they are no typical window.
                trim = 0.1 if name.startswith("p") else 0.0
                found[name, tenants] = math.exp(float(trim_mean(known, trim)))
    found["slowdown", 4] = found["mean_ms", 4] / found["mean_ms", 1]
    return found


class Tally:
    """How often intervals held the truth, and how often a bound lay on its wrong side."""

    def __init__(self) -> None:
        self.held: dict[Key, int] = {}
        self.below: dict[Key, int] = {}
        self.above: dict[Key, int] = {}

    def count(self, key: Key, bounds: Sequence[float], truth: float) -> None:
        low, high = bounds
        for counted, hit in ((self.held, low <= truth <= high), (self.below, high < truth), (self.above, low > truth)):
            counted[key] = counted.get(key, 0) + hit

    @property
    def worst(self) -> int:
        return min(self.held.values())

    @property
    def wrong(self) -> int:
        """The most wrong answers to either question: is it below, is it above."""
        return max(*self.below.values(), *self.above.values())


def tally(world: World, repeats: int, runs: int) -> Tally:
    truth, found, rng = truths(world), Tally(), np.random.default_rng(repeats)
    for _ in range(runs):
        rows = {row.tenants: row for row in shared_rows(experiment(world, repeats, rng))}
        for (name, tenants), true in truth.items():
            interval = getattr(rows[tenants], name).ci95
            assert interval is not None
            found.count((name, tenants), interval, true)
    return found


def test_every_figure_lies_in_its_interval(world: World, full: bool, publishes: Publishes) -> None:
    runs = FULL if full else QUICK
    for column, repeats in enumerate((3, 4, 5) if full else (3,)):
        found = tally(world, repeats, runs)
        if full:
            publishes(published(world, column), found.worst)
        assert found.worst >= (0.93 if full else 0.85) * runs
        assert found.wrong <= (0.06 if full else 0.125) * runs


def test_the_simulated_machine_is_as_slow_as_it_says() -> None:
    """The truth does not come from the functions under test alone: closed loops with a known mean agree with it."""
    white = truths(WORLDS[0])
    assert white["mean_ms", 1] == pytest.approx(15.0, rel=1e-3)
    assert white["slowdown", 4] == pytest.approx(2.2, rel=1e-3)
    stalls = truths(next(world for world in WORLDS if world.late))
    assert stalls["slowdown", 4] == pytest.approx(2.2 * (1 + 0.02 * 9), rel=0.01)


def test_what_a_few_repeats_cannot_see(full: bool, publishes: Publishes) -> None:
    runs = FULL if full else QUICK
    slow, edge = tally(SLOW_WANDER, 3, runs), tally(STALLS_AT_P99, 3, runs)
    assert slow.held["slowdown", 4] >= (0.93 if full else 0.85) * runs
    if full:
        publishes(r"held the mean latency in (\d+) of 1000", slow.held["mean_ms", 4])
        publishes(r"and the slowdown in (\d+);", slow.held["slowdown", 4])
        publishes(r"held p99 in (\d+) of 1000", edge.held["p99_ms", 4])
