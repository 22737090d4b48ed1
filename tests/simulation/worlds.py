"""Simulated machines with a known truth, on a clock that only their work moves."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gputax.errors import WorkerError
from gputax.measure.duet.pairs import Half, Slot

Array = NDArray[np.float64]
REQUEST_NS = 5e6
RESTART_S = 2.0
SWITCH_S = 0.0002


@dataclass(frozen=True)
class World:
    """How requests take time: relative to a typical request of A, whose factor is 1."""

    name: str
    jitter: tuple[float, float] = (0.03, 0.03)
    """Lognormal noise of each request of A and B."""
    wander: float = 0.0
    """Standard deviation of the machine's speed, which hits both sides."""
    remembers_s: float = 1.0
    drift_per_min: float = 0.0
    burst_share: float = 0.0
    """Share of half seconds in which requests of both sides take up to a few times as long."""
    stalls: tuple[float, float] = (0.0, 0.0)
    """Share of B's requests that stall, and how many times longer they then take."""
    pareto: float = 0.0
    luck: float = 0.0
    """Standard deviation of the speed between processes of one program."""
    bimodal: bool = False
    additive: bool = False
    """Whether the overhead is a constant time instead of a factor."""

    def truth(self, overhead: float) -> dict[str, float]:
        """Return the true overheads in percent, from a population of requests of many processes."""
        rng = np.random.default_rng(1)
        size = 1_000_000

        def common() -> Array:
            speed = np.exp(self.wander * rng.normal(size=size))
            return speed * self.burst(rng, rng.random(size) < self.burst_share)

        a, b = (self.requests(rng, side, common(), overhead, self.process(rng, size)) for side in (0, 1))
        found = {
            f"latency_p{p}": 100.0 * (np.quantile(b, p / 100) / np.quantile(a, p / 100) - 1.0) for p in (50, 90, 99)
        }
        return {**found, "latency_mean": 100.0 * (b.mean() / a.mean() - 1.0)}

    def process(self, rng: np.random.Generator, size: int = 1) -> Array:
        """Return the speeds of new processes."""
        drawn = rng.choice((-1.0, 1.0), size=size) if self.bimodal else rng.normal(size=size)
        return np.exp(self.luck * drawn)

    def burst(self, rng: np.random.Generator, on: NDArray[np.bool_]) -> Array:
        """Return how much longer each request takes in a burst."""
        return np.where(on, 1.0 + rng.exponential(size=on.size), 1.0)

    def requests(
        self,
        rng: np.random.Generator,
        side: int,
        common: Array,
        overhead: float,
        process: Array,
    ) -> Array:
        """Return the relative times of requests under the machine's common factors."""
        own = np.exp(self.jitter[side] * rng.normal(size=common.size))
        if self.pareto:
            own = own * (1.0 + self.pareto * rng.pareto(3.0, size=common.size))
        if side == 1 and self.stalls[0]:
            own = own * np.where(rng.random(common.size) < self.stalls[0], self.stalls[1], 1.0)
        times = common * own * process
        if side == 0:
            return times
        return times + overhead if self.additive else times * (1.0 + overhead)


@dataclass
class Machine:
    """One machine in one of these worlds."""

    world: World
    seed: int
    now_s: float = 0.0
    rng: np.random.Generator = field(init=False)
    _speed: float = field(init=False)
    _speed_at_s: float = 0.0
    _burst_until_s: float = 0.0
    _burst: bool = False

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self._speed = self.rng.normal()

    def clock(self) -> float:
        """Return the simulated time."""
        return self.now_s

    def common(self, size: int) -> Array:
        """Return the machine's factor for the next requests."""
        world = self.world
        factor = math.exp(world.drift_per_min * self.now_s / 60.0)
        if world.wander:
            keep = math.exp((self._speed_at_s - self.now_s) / world.remembers_s)
            self._speed = keep * self._speed + math.sqrt(1.0 - keep**2) * self.rng.normal()
            self._speed_at_s = self.now_s
            factor *= math.exp(world.wander * self._speed)
        if not world.burst_share:
            return np.full(size, factor)
        if self.now_s >= self._burst_until_s:
            self._burst = bool(self.rng.random() < world.burst_share)
            self._burst_until_s = self.now_s + 0.5
        return factor * world.burst(self.rng, np.full(size, self._burst))


class SimulatedSide:
    """One side with a worker whose speed is its own."""

    def __init__(self, machine: Machine, side: int, overhead: float) -> None:
        self.machine, self.side, self.overhead = machine, side, overhead
        self.slots: list[tuple[Slot, int]] = []
        self.dies_at: set[int] = set()
        self.start()

    def start(self) -> None:
        """Begin with a new process."""
        self.process = self.machine.world.process(self.machine.rng)

    def run_slot(self, slot: Slot, seed: int) -> Half:
        """Let the simulated time pass."""
        self.slots.append((slot, seed))
        if len(self.slots) in self.dies_at:
            raise WorkerError("the worker was killed")
        machine = self.machine
        common = machine.common(slot.runs + slot.dropped)
        times = REQUEST_NS * machine.world.requests(machine.rng, self.side, common, self.overhead, self.process)
        machine.now_s += float(times.sum()) / 1e9 + SWITCH_S
        return Half(times[slot.dropped :])


class SimulatedSides:
    """A, B and perhaps a twin of A on one machine."""

    def __init__(self, world: World, seed: int, overhead: float, *, control: bool = False, runs: int = 4) -> None:
        self.machine = Machine(world, seed)
        self.a, self.b = SimulatedSide(self.machine, 0, 0.0), SimulatedSide(self.machine, 1, overhead)
        self.twin = SimulatedSide(self.machine, 0, 0.0) if control else None
        self.restarts = 0
        self.taken: list[str] = []
        self._slot = Slot(runs, 1)
        self.begin_fails = 0

    def begin(self, workload: str) -> Slot:
        """Return the slot."""
        self.taken.append(workload)
        if self.begin_fails:
            self.begin_fails -= 1
            raise WorkerError("the worker was killed while it warmed up")
        return self._slot

    def restart(self) -> None:
        """Replace all processes."""
        self.restarts += 1
        self.machine.now_s += RESTART_S
        for side in (self.a, self.b, self.twin):
            if side is not None:
                side.start()


WORLDS = {
    world.name: world
    for world in (
        World("white noise"),
        World("drift of 10 % a minute", drift_per_min=0.1),
        World("speed wanders by 5 %", wander=0.05),
        World("bursts on both sides", burst_share=0.1),
        World("1 % of B's requests stall", stalls=(0.01, 21.0)),
        World("20 % of B's requests stall", stalls=(0.2, 2.0)),
        World("unequal jitter, 1 and 10 %", jitter=(0.01, 0.10)),
        World("heavy tail on B", jitter=(0.03, 0.3)),
        World("heavy tails on both", pareto=0.1),
        World("process luck 0.3 %", luck=0.003),
        World("process luck 1 %", luck=0.01),
        World("process luck 1 %, two kinds", luck=0.01, bimodal=True),
        World("added time, speed wanders by 20 %", wander=0.2, additive=True),
    )
}
