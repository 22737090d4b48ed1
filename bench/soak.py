"""`python -m bench.soak`: tenants one after the other, at once and under random kills; exit code 1 if one is lost.

Three parts, all on the software device: tenants one after the other and tenants at once must leave the broker's
descriptors, threads and memory as they were; and while tenants, workers and the broker are killed at random, nobody
may lose anything but who was killed. It prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench.tenants import CALL_FAILED, ENDED_WELL, LOST_WORKER, WRONG_ANSWER, Tenant, fork_tenant, open_driver
from gputax.environments.driver import LIBVGPU, SOFTWARE_DEVICE, native_part
from gputax.environments.proxy import SOCKET_VARIABLE, ProxyAddress, ProxyOptions
from gputax.errors import GputaxError

WARM_UP = 80  # the broker remembers its last 64 tenants
PATIENCE_S = 60.0
LEAK_KIB = 1024
STATUS_TRIES = 5
PROGRESS_S = 60.0
SETTLED_READS, SETTLED_READS_S = 5, 0.05
CHECKED_BYTES = 20_000
POPULATION = 8
PACE_S = 0.1
STAYED = -signal.SIGALRM  # the code of a tenant that did not end
WORD = struct.Struct("<Q")
FATES = {
    ENDED_WELL: "ended well",
    LOST_WORKER: "lost its worker",
    CALL_FAILED: "had a call that failed",
    WRONG_ANSWER: "got wrong bytes",
    -signal.SIGKILL: "was killed",
    STAYED: "did not end",
}


@dataclass(frozen=True)
class Footprint:
    """What a process holds."""

    descriptors: int
    threads: int
    resident_kib: int


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    tenants: int
    together: int
    seconds: float
    pause_s: float
    kill_every_s: float
    seed: int


@dataclass
class Kills:
    """What a run with random kills saw."""

    killed: dict[str, int] = field(default_factory=lambda: {"tenant": 0, "worker": 0, "broker": 0})
    operations: int = 0
    lost: list[str] = field(default_factory=list)
    seconds: float = 0


def settled_footprint(pid: int) -> Footprint:
    """Read what a process holds when it is at rest: an answer to a reader of its status takes a thread for a moment."""
    seen = []
    for _ in range(SETTLED_READS):
        seen.append(read_footprint(pid))
        time.sleep(SETTLED_READS_S)
    return Footprint(*(min(values) for values in zip(*map(astuple, seen), strict=True)))


def read_footprint(pid: int) -> Footprint:
    """Read what a process holds now."""
    status = Path(f"/proc/{pid}/status").read_text()
    facts = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if len(line.split()) > 1}
    return Footprint(len(list(Path(f"/proc/{pid}/fd").iterdir())), int(facts["Threads"]), int(facts["VmRSS"]))


def leaks(before: Footprint, after: Footprint) -> list[str]:
    """Return what has grown. Memory may grow by a little: an allocator keeps what it has."""
    grown = []
    if after.descriptors > before.descriptors:
        grown.append(f"{after.descriptors - before.descriptors} descriptors more than at first")
    if after.threads > before.threads:
        grown.append(f"{after.threads - before.threads} threads more than at first")
    if after.resident_kib > before.resident_kib + LEAK_KIB:
        grown.append(f"{after.resident_kib - before.resident_kib} KiB more than at first")
    return grown


def unexpected(fates: Mapping[int, int], allowed: Mapping[int, int]) -> list[str]:
    """Return a line for each tenant (number: exit code) that did not end as it was allowed to (default: well)."""
    return [
        f"tenant {number} {FATES.get(code, f'ended with {code}')}"
        for number, code in fates.items()
        if code != allowed.get(number, ENDED_WELL)
    ]


class Broker:
    """A proxy that is started again at the same socket after its death."""

    def __init__(self, folder: Path) -> None:
        self.address = ProxyAddress(folder / "s")
        self._log = (folder / "log").open("ab")
        self.start()

    def start(self) -> None:
        """Start it and wait until it serves."""
        options = ProxyOptions(native_part(SOFTWARE_DEVICE))
        self._process = subprocess.Popen(
            options.words(self.address.socket), stdout=subprocess.PIPE, stderr=self._log, stdin=subprocess.DEVNULL
        )
        assert self._process.stdout
        if not self._process.stdout.readline():
            raise GputaxError("the proxy did not start", where=self._log.name, next_step="read that file")

    @property
    def pid(self) -> int:
        """The broker's process."""
        return self._process.pid

    def tenants(self) -> dict[int, int]:
        """Return the worker of each tenant, by the tenant's process."""
        for _ in range(STATUS_TRIES):
            # A reader that does not ask within a second is dropped, and on a starved machine that is soon over.
            with suppress(GputaxError):
                return {each["pid"]: each["worker"] for each in self.address.status()["tenants"]}
            if self._process.poll() is not None:
                raise GputaxError(f"the broker ended by itself with {self._process.returncode}", where=self._log.name)
        return {each["pid"]: each["worker"] for each in self.address.status()["tenants"]}

    def kill(self) -> None:
        """Kill it as the out-of-memory killer would."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """End it in order; its exit code."""
        self._process.terminate()
        try:
            return self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE_S) -> bool:
    """Whether the condition was met in time."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def reap(pid: int, seconds: float = PATIENCE_S) -> int | None:
    """Return the exit code of a child (a negative number for a signal), None if it lives on."""
    until = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= until:
            return None
        time.sleep(0.005)


def one_by_one(broker: Broker, driver: Any, sizes: Sizes) -> dict[str, Any]:
    """Start tenants one after the other."""

    def visit(seed: int) -> None:
        Tenant(driver).check(seed, CHECKED_BYTES)

    before = settled_footprint(broker.pid)
    lost: list[str] = []
    begun = time.monotonic()
    for number in range(WARM_UP + sizes.tenants):
        if number == WARM_UP:
            wait_until(lambda: not broker.tenants())
            before = settled_footprint(broker.pid)
        code = reap(fork_tenant(partial(visit, number)))
        lost += unexpected({number: STAYED if code is None else code}, {})
        time.sleep(sizes.pause_s)
    emptied = wait_until(lambda: not broker.tenants())
    after = settled_footprint(broker.pid)
    return {
        "tenants": sizes.tenants,
        "seconds": time.monotonic() - begun,
        "before": asdict(before),
        "after": asdict(after),
        "lost": lost + leaks(before, after) + ([] if emptied else ["workers live on without tenants"]),
    }


def all_together(broker: Broker, driver: Any, sizes: Sizes) -> dict[str, Any]:
    """Start tenants that are connected all at once; nobody leaves before the last one has come."""
    before = settled_footprint(broker.pid)
    gate, opened = os.pipe()

    def stay(seed: int) -> None:
        os.close(opened)
        tenant = Tenant(driver)
        tenant.check(seed, CHECKED_BYTES)
        os.read(gate, 1)  # ends when the gate opens
        tenant.check(seed + 1, CHECKED_BYTES)

    begun = time.monotonic()
    children = [fork_tenant(partial(stay, number)) for number in range(sizes.together)]
    complete = wait_until(lambda: len(broker.tenants()) == sizes.together, PATIENCE_S * 2)
    most = len(broker.tenants())
    while_there = read_footprint(broker.pid)
    os.close(opened)
    codes = {number: reap(child) for number, child in enumerate(children)}
    os.close(gate)
    lost = unexpected({number: STAYED if code is None else code for number, code in codes.items()}, {})
    emptied = wait_until(lambda: not broker.tenants())
    after = settled_footprint(broker.pid)
    return {
        "tenants": most,
        "seconds": time.monotonic() - begun,
        "before": asdict(before),
        "while_connected": asdict(while_there),
        "after": asdict(after),
        "lost": lost
        + leaks(before, after)
        + ([] if complete else [f"only {most} of {sizes.together} were connected at once"])
        + ([] if emptied else ["workers live on without tenants"]),
    }


class Population:
    """Tenants that work all the time, each with a counter that the coordinator sees."""

    def __init__(self, driver: Any, size: int) -> None:
        self._driver = driver
        self._shared = mmap.mmap(-1, mmap.PAGESIZE)
        self.members: dict[int, int] = {}  # the process of each place
        self.size = size

    def refill(self) -> None:
        """Start a tenant for each place that has none."""
        for place in range(self.size):
            if place not in self.members:
                self.members[place] = fork_tenant(partial(self._work, place))

    def _work(self, place: int) -> None:
        tenant = Tenant(self._driver)
        seed = os.getpid()
        while not self._read(self.size):
            tenant.check(seed, CHECKED_BYTES)
            seed += 1
            WORD.pack_into(self._shared, WORD.size * place, self._read(place) + 1)
            time.sleep(PACE_S)

    def _read(self, place: int) -> int:
        count: int = WORD.unpack_from(self._shared, WORD.size * place)[0]
        return count

    def counts(self) -> list[int]:
        """Return how many operations each place has done so far."""
        return [self._read(place) for place in range(self.size)]

    def advance(self, places: Sequence[int]) -> list[int]:
        """Return the places that do no operation any more."""
        before = self.counts()
        wait_until(lambda: all(self._read(place) > before[place] for place in places))
        return [place for place in places if self._read(place) == before[place]]

    def end(self) -> dict[int, int]:
        """Tell all to leave; their exit codes by place."""
        WORD.pack_into(self._shared, WORD.size * self.size, 1)
        codes = {place: reap(pid) for place, pid in self.members.items()}
        for place, pid in self.members.items():
            if codes[place] is None:
                os.kill(pid, signal.SIGKILL)
                reap(pid)
        return {place: STAYED if code is None else code for place, code in codes.items()}


def strike(kind: str, dice: random.Random, broker: Broker, population: Population) -> list[str]:
    """Kill one thing, see who ends and how, and bring everything back; returns what was lost beside it."""
    place = dice.randrange(population.size)
    workers = broker.tenants()
    struck = [place] if kind != "broker" else list(range(population.size))
    if kind == "tenant":
        os.kill(population.members[place], signal.SIGKILL)
    elif kind == "worker":
        os.kill(workers[population.members[place]], dice.choice((signal.SIGKILL, signal.SIGSEGV)))
    else:
        broker.kill()
    expected = -signal.SIGKILL if kind == "tenant" else LOST_WORKER
    ends = {each: reap(population.members[each]) for each in struck}
    lost = unexpected(
        {each: STAYED if end is None else end for each, end in ends.items()}, dict.fromkeys(struck, expected)
    )
    gone = workers.values() if kind == "broker" else [workers[population.members[place]]]
    if not wait_until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in gone)):
        lost.append(f"a worker lives on after the death of its {kind}")
    for each in struck:
        del population.members[each]
    if kind == "broker":
        broker.start()
    lost += [
        f"place {each} does not go on beside a killed {kind}" for each in population.advance(sorted(population.members))
    ]
    lost += settle(broker, population)
    return lost


def settle(broker: Broker, population: Population) -> list[str]:
    """Fill every place, and wait until the broker knows exactly these tenants."""
    population.refill()
    wanted = set(population.members.values())
    if wait_until(lambda: set(broker.tenants()) == wanted) and not population.advance(range(population.size)):
        return []
    return [f"the broker knows {sorted(broker.tenants())}, and the tenants are {sorted(wanted)}"]


def random_kills(broker: Broker, driver: Any, sizes: Sizes) -> dict[str, Any]:
    """Kill tenants, workers and the broker at random moments."""
    dice = random.Random(sizes.seed)
    population, seen = Population(driver, POPULATION), Kills()
    seen.lost += settle(broker, population)
    begun = told = time.monotonic()
    while time.monotonic() - begun < sizes.seconds and not seen.lost:
        time.sleep(sizes.kill_every_s * (0.5 + dice.random()))
        (kind,) = dice.choices(tuple(seen.killed), weights=(5, 5, 1))
        seen.lost += [f"{time.monotonic() - begun:.0f} s: {line}" for line in strike(kind, dice, broker, population)]
        seen.killed[kind] += 1
        if time.monotonic() > told + PROGRESS_S:
            told = time.monotonic()
            print(f"soak: {told - begun:.0f} s, killed {seen.killed}", file=sys.stderr, flush=True)
    seen.operations = sum(population.counts())
    seen.lost += unexpected(population.end(), {})
    seen.seconds = time.monotonic() - begun
    if not wait_until(lambda: not broker.tenants()):
        seen.lost.append("workers live on without tenants")
    return asdict(seen)


@contextmanager
def brokered() -> Iterator[Broker]:
    """Run a broker in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="gputax-soak-", dir="/tmp") as folder:
        broker = Broker(Path(folder))
        os.environ[SOCKET_VARIABLE] = str(broker.address.socket)
        try:
            yield broker
        finally:
            with suppress(ProcessLookupError):
                broker.stop()


def soak(sizes: Sizes) -> dict[str, Any]:
    """Run the parts that have a size."""
    driver = open_driver(native_part(LIBVGPU))
    parts = {"one_by_one": one_by_one, "together": all_together, "kills": random_kills}
    chosen = {"one_by_one": sizes.tenants, "together": sizes.together, "kills": sizes.seconds}
    found: dict[str, Any] = {"device": "software device, not a GPU"}
    with brokered() as broker:
        for name, part in parts.items():
            if chosen[name]:
                print(f"soak: {name} …", file=sys.stderr, flush=True)
                found[name] = part(broker, driver, sizes)
        found["exit_code_of_the_broker"] = broker.stop()
    return found


def parse(words: Sequence[str]) -> Sizes:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--tenants", type=int, default=1000, help="one after the other (0: leave out)")
    parser.add_argument("--together", type=int, default=128, help="at once, at most 128 for one user (0: leave out)")
    parser.add_argument("--seconds", type=float, default=60, help="of random kills (0: leave out)")
    parser.add_argument("--pause-ms", type=float, default=20, help="between two tenants; 50 a second are served")
    parser.add_argument("--kill-every-ms", type=float, default=1000, help="mean time between two kills")
    parser.add_argument("--seed", type=int, default=1, help="of the kills")
    given = parser.parse_args(words)
    return Sizes(
        given.tenants, given.together, given.seconds, given.pause_ms / 1e3, given.kill_every_ms / 1e3, given.seed
    )


def main(words: Sequence[str]) -> int:
    """Print what was seen; 1 if anything was lost."""
    found = soak(parse(words))
    print(json.dumps(found, indent=2))
    lost = [line for part in found.values() if isinstance(part, dict) for line in part["lost"]]
    for line in lost:
        print(f"soak: LOST: {line}", file=sys.stderr)
    return 1 if lost or found["exit_code_of_the_broker"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
