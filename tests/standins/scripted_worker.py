"""A real worker whose engine does what a script says: run by path, with a state file and any number of habits.

The victim takes 10 ms for a run, and 20 ms while the neighbour is at work. Habits: `indifferent` (the victim does not
care), `takes-victim-along` (a crash kills the victim too), `never-again` (no worker starts after a crash), `one-memory`
(all tenants keep their secrets in the same place). How long each run of the victim really took is kept in the state:
on a busy machine a sleep of 10 ms takes longer, and what is measured must be that.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from gputax.worker import isolation as isolation_host
from gputax.worker import preparation
from gputax.worker.engines.engine import EngineRequest, NoResponse
from gputax.worker.isolation import attempt
from gputax.worker.main import main

QUICK_S, SLOW_S = 0.010, 0.020
AT_WORK_NS = 100_000_000
ACTIVE, VICTIM, CRASHES, RUNS = 0, 8, 16, 24
FIRST_RUN = 4096
STATE_BYTES = FIRST_RUN + (1 << 18)  # for more runs of 10 ms than a minute has


class VictimRun(NamedTuple):
    """One run as the victim itself knows it."""

    start_ns: int
    end_ns: int
    slow: int
    """1 where the neighbour was at work and was minded."""


RUN = struct.Struct("<qqq")


class State:
    """Numbers that all workers of one test see."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), STATE_BYTES)

    def get(self, at: int) -> int:
        return int(struct.unpack_from("<q", self._memory, at)[0])

    def set(self, at: int, value: int) -> None:
        struct.pack_into("<q", self._memory, at, value)

    def add_run(self, run: VictimRun) -> None:
        RUN.pack_into(self._memory, FIRST_RUN + self.get(RUNS) * RUN.size, *run)
        self.set(RUNS, self.get(RUNS) + 1)

    def runs(self) -> list[VictimRun]:
        return [VictimRun(*RUN.unpack_from(self._memory, FIRST_RUN + n * RUN.size)) for n in range(self.get(RUNS))]


class ScriptedEngine:
    device = "cpu"

    def __init__(self, name: str, request: EngineRequest, state: State, habits: set[str]) -> None:
        self._state, self._habits, self._options = state, habits, request.options
        self._is_neighbour = name == "neighbour"
        self._first_ns = 0
        self._response = NoResponse(request.max_batch)
        self.response_address, self.response_bytes = self._response.address, self._response.bytes_per_sample
        if not self._is_neighbour:
            state.set(VICTIM, os.getpid())

    def facts(self) -> dict[str, Any]:
        return {"engine": "synthetic", "provider": "script", "threads": 1, "precision": "none", "device_name": "script"}

    def adapt_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return inputs

    def load_samples(self, samples: Any) -> None:
        pass

    def close(self) -> None:
        pass

    def run(self, first: int, count: int) -> None:
        now_ns = time.perf_counter_ns()
        if self._is_neighbour:
            self._first_ns = self._first_ns or now_ns
            self._state.set(ACTIVE, now_ns)
            if (
                self._options["kind"] == "crash"
                and now_ns - self._first_ns > float(self._options["crash_after_ms"]) * 1e6
            ):
                self._crash()
            time.sleep(0.001)
        else:
            at_work = now_ns - self._state.get(ACTIVE) < AT_WORK_NS and "indifferent" not in self._habits
            time.sleep(SLOW_S if at_work else QUICK_S)
            self._state.add_run(VictimRun(now_ns, time.perf_counter_ns(), int(at_work)))

    def _crash(self) -> None:
        self._state.set(CRASHES, self._state.get(CRASHES) + 1)
        if "takes-victim-along" in self._habits:
            os.kill(self._state.get(VICTIM), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


class OneMemory(isolation_host.HostWalls):
    """Walls that are none: every tenant's secret lies in the same file."""

    path = Path()

    def hold(self, secret: bytes) -> dict[str, Any]:
        self.path.write_bytes(secret)
        return {**super().hold(secret), "pid": 0}

    def read(self, secret: bytes, place: dict[str, Any]) -> dict[str, Any]:
        return {"attempts": [attempt("the common memory", "read", found=secret in self.path.read_bytes())]}


def scripted() -> None:
    path, habits = Path(sys.argv[1]), set(sys.argv[2:])
    state = State(path)
    if "never-again" in habits and state.get(CRASHES):
        sys.exit("nothing starts here any more")
    if "one-memory" in habits:
        OneMemory.path = path.with_name("common-memory")
        isolation_host.HostWalls = OneMemory  # type: ignore[misc]
    vars(preparation)["load_engine"] = lambda name, request: ScriptedEngine(name, request, state, habits)
    main()


if __name__ == "__main__":
    scripted()
