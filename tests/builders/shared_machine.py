"""A simulated machine that tenants share, in worlds whose truth is known.

Each world has a stock of cells in which every run of every tenant is simulated and judged by the product's functions.
An experiment draws from it and multiplies each cell by the machine's speed at that time. So the truth is known exactly:
it is what the stock has, the value of an undisturbed repeat.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gputax.plan.cells import Setup
from gputax.plan.techniques import SharePlan
from gputax.results.documents.sharing import SharedCell
from gputax.stats.shared import TenantRuns, common_window, jain_index, served, served_together
from tests.builders.sharing_records import cell as cell_document
from tests.builders.sharing_records import contention

Array = NDArray[np.float64]
COUNTS = (1, 2, 4)
LATENCY = contention(15.0, 0.4)
"""Milliseconds by number of tenants."""
START_S, WARMUP_S, WINDOW_S = 3.0, 2.0, 10.0
CELL_S = START_S + WARMUP_S + WINDOW_S
STOCK = 200
"""Cells of one world and one number of tenants."""
BURST_FACTOR, LATE_FACTOR, DISTURBED = 3.0, 10.0, 0.3
PARETO_SHAPE, PARETO_MOST = 2.5, 50.0


@dataclass(frozen=True)
class World:
    """What disturbs the tenants; all of it as parts of one, so 0.01 is 1 %."""

    name: str
    jitter: float = 0.02
    """Standard deviation of a run's log latency."""
    crowd_jitter: float = 0.0
    """The same if there are several tenants; 0: no other."""
    bursts_per_s: float = 0.0
    """The machine is three times slower for 0.1 s."""
    late: float = 0.0
    """Runs that take ten times as long, only if there are several tenants."""
    pareto: bool = False
    luck: float = 0.0
    """How far processes differ."""
    two_kinds: bool = False
    """A process is either faster or slower by `luck`, and nothing between."""
    drift_per_min: float = 0.0
    wander: float = 0.0
    remembers_s: float = 5.0
    repeat_shift: float = 0.0
    """How far repeats differ, all cells of a repeat alike."""
    disturbed_repeats: float = 0.0
    disturbed_cells: float = 0.0
    """Each is 30 % slower."""

    def within_cell(self) -> World:
        """Return the world of one cell: what changes only between cells does not matter."""
        return World(
            "", self.jitter, self.crowd_jitter, self.bursts_per_s, self.late, self.pareto, self.luck, self.two_kinds
        )


WORLDS = (
    World("white noise"),
    World("drift, 1 % a minute", drift_per_min=0.01),
    World("wandering speed, 5 %", wander=0.05),
    World("bursts on all", bursts_per_s=1.0),
    World("stalls if several share", late=0.02),
    World("unequal jitter, 1 % and 30 %", jitter=0.01, crowd_jitter=0.3),
    World("heavy tails", pareto=True),
    World("process luck 0.3 %", luck=0.003),
    World("process luck 1 %", luck=0.01),
    World("process luck 0.3 %, two kinds", luck=0.003, two_kinds=True),
    World("process luck 1 %, two kinds", luck=0.01, two_kinds=True),
    World("repeats differ by 3 %", repeat_shift=0.03),
    World("1 repeat in 10 disturbed", disturbed_repeats=0.1),
    World("1 cell in 10 disturbed", disturbed_cells=0.1),
)
# Without `--full`: one of each kind.
SOON = tuple(
    world
    for world in WORLDS
    if world.name
    in (
        "white noise",
        "stalls if several share",
        "process luck 1 %, two kinds",
        "repeats differ by 3 %",
        "1 repeat in 10 disturbed",
    )
)
# What so few repeats cannot see.
SLOW_WANDER = World("wandering speed, 5 %, over minutes", wander=0.05, remembers_s=300.0)
STALLS_AT_P99 = World("stalls of exactly 1 %", late=0.01)


def published(world: World, column: int) -> str:
    """Return the pattern of a number in the table of docs/method.md: three columns of share, three of advise."""
    return rf"\| {re.escape(world.name)} \|(?: \d+ \|){{{column}}} (\d+) \|(?: \d+ \|){{{5 - column}}}(?! \d)"


class Machine:
    """Measures cells one after the other on a simulated clock."""

    def __init__(self, world: World, rng: np.random.Generator, begin_s: float = 0.0) -> None:
        self.world, self.rng, self.now_s = world, rng, begin_s
        self._state = float(rng.normal())

    def cell(self, technique: str, tenants: int, repeat: int, shift: float = 0.0) -> SharedCell:
        """Return one cell; `shift` is the repeat's slowness in log units."""
        world = self.world
        found = stock(world.within_cell(), tenants)[self.rng.integers(STOCK)]
        log = shift + world.drift_per_min * self.now_s / 60.0 + world.wander * self._state
        if self.rng.random() < world.disturbed_cells:
            log += math.log1p(DISTURBED)
        self.now_s += CELL_S
        keep = math.exp(-CELL_S / world.remembers_s)
        self._state = keep * self._state + math.sqrt(1 - keep**2) * float(self.rng.normal())
        named = {"cell": f"{technique}-t{tenants}-r{repeat}", "technique": technique, "repeat": repeat}
        return slower(found, math.exp(log)).model_copy(update=named)

    def repeat_shift(self) -> float:
        """Return what all cells of one repeat have in common."""
        disturbed = self.rng.random() < self.world.disturbed_repeats
        return float(self.rng.normal(0, self.world.repeat_shift)) + (math.log1p(DISTURBED) if disturbed else 0.0)


def experiment(world: World, repeats: int, rng: np.random.Generator, technique: str = "mps") -> list[SharedCell]:
    """Measure a whole experiment in the product's order; the drift is zero in its middle."""
    plan = SharePlan("k8s", (technique,), COUNTS, Setup("yolos-small"), repeats=repeats)
    planned = plan.cells()
    machine = Machine(world, rng, -len(planned) * CELL_S / 2)
    shifts = [machine.repeat_shift() for _ in range(repeats)]
    return [machine.cell(technique, each.tenants, each.repeat, shifts[each.repeat - 1]) for each in planned]


def slower(cell: SharedCell, factor: float) -> SharedCell:
    """Return the cell as a machine that is slower by this factor would have measured it."""

    def scaled(values: SharedCell | object, rate: str) -> dict[str, float]:
        times = {name: getattr(values, name) for name in ("mean_ms", "p50_ms", "p90_ms", "p99_ms")}
        found = {name: factor * value for name, value in times.items() if value is not None}
        return {**found, rate: getattr(values, rate) / factor}

    results = tuple(each.model_copy(update=scaled(each, "throughput_per_s")) for each in cell.results)
    return cell.model_copy(update={**scaled(cell, "aggregate_per_s"), "results": results})


@lru_cache(maxsize=64)
def stock(world: World, tenants: int) -> tuple[SharedCell, ...]:
    """Return the world's cells with this many tenants."""
    rng = np.random.default_rng(tenants)
    return tuple(_measured(world, tenants, rng) for _ in range(STOCK))


def _measured(world: World, tenants: int, rng: np.random.Generator) -> SharedCell:
    runs = _runs(world, tenants, rng)
    window = common_window(runs, 0, WARMUP_S)
    each = [served(one, window) for one in runs]
    together = served_together(runs, window)
    document = cell_document("mps", tenants, 1, 1.0)
    results = tuple(
        result.model_copy(
            update={
                "inferences": one.runs,
                "throughput_per_s": one.throughput_per_s,
                "mean_ms": one.mean_ms,
                "p50_ms": one.p50_ms,
                "p90_ms": one.p90_ms,
                "p99_ms": one.p99_ms,
            }
        )
        for result, one in zip(document.results, each, strict=True)
    )
    return document.model_copy(
        update={
            "mean_ms": together.mean_ms,
            "p50_ms": together.p50_ms,
            "p90_ms": together.p90_ms,
            "p99_ms": together.p99_ms,
            "aggregate_per_s": together.throughput_per_s,
            "jain": jain_index([one.throughput_per_s for one in each]),
            "results": results,
        }
    )


def _runs(world: World, tenants: int, rng: np.random.Generator) -> list[TenantRuns]:
    """Return every run of every tenant from the release to the end of the load."""
    typical_s, whole_s = LATENCY(tenants) / 1e3, WARMUP_S + WINDOW_S
    count = math.ceil(whole_s / typical_s)
    latency_s = typical_s * _noise(world, rng, tenants, count) * np.exp(_luck(world, rng, tenants))[:, None]
    if world.bursts_per_s:
        bursting = rng.random(math.ceil(whole_s / 0.1)) < 0.1 * world.bursts_per_s
        latency_s *= np.where(bursting, BURST_FACTOR, 1.0)[(np.arange(count) * typical_s / 0.1).astype(int)]
    end_ns = (1e9 * np.cumsum(latency_s, axis=1)).astype(np.int64)
    start_ns = np.concatenate([np.zeros((tenants, 1), np.int64), end_ns[:, :-1]], axis=1)
    return [
        TenantRuns(start[begun], end[begun], np.ones(int(begun.sum()), np.int64))
        for start, end in zip(start_ns, end_ns, strict=True)
        if (begun := start < int(1e9 * whole_s)).any()
    ]


def _noise(world: World, rng: np.random.Generator, tenants: int, count: int) -> Array:
    sd = world.crowd_jitter or world.jitter if tenants > 1 else world.jitter
    noise: Array = np.exp(rng.normal(-sd * sd / 2, sd, (tenants, count)))
    if world.pareto:
        noise *= np.minimum(1.0 + rng.pareto(PARETO_SHAPE, noise.shape), PARETO_MOST) * (1.0 - 1.0 / PARETO_SHAPE)
    if world.late and tenants > 1:
        noise[rng.random(noise.shape) < world.late] *= LATE_FACTOR
    return noise


def _luck(world: World, rng: np.random.Generator, tenants: int) -> Array:
    if world.two_kinds:
        return world.luck * rng.choice((-1.0, 1.0), tenants)
    return rng.normal(0, world.luck, tenants)
