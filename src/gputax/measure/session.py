"""A prepared worker, the loads that are applied to it, and one task for several workers at once."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gputax.environments.connection import WorkerConnection
from gputax.environments.environment import Environment, Evidence
from gputax.errors import WorkerError
from gputax.measure.delivery import delivered
from gputax.measure.sizing import Pilot, pilot_load, read_pilot
from gputax.measure.view import RunView
from gputax.plan.cells import Load, Setup
from gputax.plan.driver import driver_choice
from gputax.plan.notices import Notice
from gputax.results.columns import latencies_ns, succeeded, without_first
from gputax.results.token_series import token_series
from gputax.worker.protocol import decode_array

# Building BERT-Large's weights or a TensorRT engine takes minutes; a worker that is silent for longer is stuck.
PREPARE_STALL_S = 900.0
FIRST_RUN_STALL_S = 600.0
STALL_FLOOR_S = 60.0
STALL_CALLS = 20
CLOSED_LOOP = "saturate"
SLOT_COUNTERS = ("run_wait_ns", "cpu_ns", "throttled_ns", "steal_ns", "major_faults")


@dataclass(frozen=True)
class Observation:
    """The result of one load."""

    load: Load
    columns: dict[str, npt.NDArray[np.int64]]
    logs: dict[str, str]
    notices: tuple[Notice, ...]
    telemetry: dict[str, Any]
    elapsed_s: float


@dataclass(frozen=True)
class SlotRun:
    """One half of a pair: the counted runs, and what the worker's threads did during them."""

    durations_ns: npt.NDArray[np.int64]
    run_wait_ns: int | None
    """How long its threads were ready to run and had no CPU, summed; None if the worker's kernel does not count it."""
    cpu_ns: int | None
    """The CPU time of all of its threads; None from a worker of an earlier version."""
    throttled_ns: int | None = None
    steal_ns: int | None = None
    major_faults: int | None = None
    counters: dict[str, int] = field(default_factory=dict)
    """What a program of the user's used meanwhile, by name and unit; empty for other engines."""
    failed: int = 0
    """Requests to a server that failed; they are in no duration."""
    series: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    """The values of the tokens, if the answers are tokens."""


class WorkerSession:
    """One worker with one setup; loads can be applied until it is closed or dies."""

    def __init__(self, environment: Environment, setup: Setup, view: RunView, stall_timeout_s: float = 0.0) -> None:
        self._view = view
        self._stall_timeout_s = stall_timeout_s
        self.connection = WorkerConnection(environment)
        self._pilots: dict[int, Pilot] = {}
        self.pilot_observation: Observation | None = None
        """The last pilot, with what disturbed it."""
        self.facts: dict[str, Any] = {}
        try:
            self.described = self.connection.describe()
            self.prepare(setup)
        except BaseException:
            self.connection.end()
            raise

    def prepare(self, setup: Setup) -> None:
        """Load a setup, replacing the previous one."""
        self.setup = setup
        self._pilots.clear()
        there = delivered(self.connection, setup)
        self.facts = self.connection.call(
            "prepare", setup=there.to_dict(), stall_timeout_s=PREPARE_STALL_S, on_event=self._on_event
        )
        if self.described.host.get("emulated"):  # so that every record, claim and comparison of it knows
            self.facts["emulated"] = True

    def evidence(self) -> Evidence:
        """Return the evidence that the environment was active: the worker's report, checked against other sources."""
        uses_driver = driver_choice(self.setup).needed or bool(self.setup.program.words)
        return self.connection.proven(self.described, uses_driver=uses_driver, stall_timeout_s=STALL_FLOOR_S).evidence

    def resources(self) -> dict[str, Any]:
        """Return what the loaded worker got from its host; empty from a worker that does not know the question."""
        answer = self.connection.call("describe", about="resources", stall_timeout_s=STALL_FLOOR_S)
        found = answer.get("resources")
        return dict(found) if isinstance(found, dict) else {}

    @property
    def usable(self) -> bool:
        """Whether another load can be applied."""
        return not self.connection.ended

    def close(self) -> None:
        """Stop the worker gracefully."""
        self.connection.close()

    def end(self) -> None:
        """Stop the worker now."""
        self.connection.end()

    def pilot(self, batch_size: int, seconds: float = 1.0) -> Pilot:
        """Warm up one batch size and measure its speed; repeated for each cell, because clocks and caches cool down."""
        observation = self.apply(pilot_load(batch_size, seconds), self._stall_timeout_s or FIRST_RUN_STALL_S)
        self.pilot_observation = observation
        pilot = read_pilot(batch_size, observation.columns)
        self._pilots[batch_size] = pilot
        return pilot

    def apply(self, load: Load, stall_timeout_s: float = 0.0) -> Observation:
        """Apply one load and decode the result."""
        answer = self.connection.call(
            "measure",
            load=load.to_dict(),
            stall_timeout_s=stall_timeout_s or self._stall_s(),
            on_event=self._on_event,
        )
        try:
            return Observation(
                load=load,
                columns={name: decode_array(packed) for name, packed in answer["columns"].items()},
                logs={str(name): str(text) for name, text in answer["logs"].items()},
                notices=tuple(Notice.from_dict(notice) for notice in answer["notices"]),
                telemetry=dict(answer["telemetry"]),
                elapsed_s=float(answer["elapsed_s"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise WorkerError(f"malformed reply from the worker: {error!r}", where="measure") from error

    def slot(self, batch: int, runs: int, first_run: int, dropped: int) -> SlotRun:
        """Run one half of a pair: `runs` runs, of which the first `dropped` are not counted."""
        answer = self.connection.call(
            "measure",
            slot={"batch": batch, "runs": runs, "first_run": first_run, "dropped": dropped},
            stall_timeout_s=self._stall_timeout_s or FIRST_RUN_STALL_S,
        )
        try:
            columns = {str(name): decode_array(packed) for name, packed in answer["columns"].items()}
            # A server's dropped requests do not come back: those in flight end in any order.
            dropped = int(answer.get("dropped", dropped))
            durations_ns = latencies_ns("single-stream", columns)
            spent = {name: None if answer.get(name) is None else int(answer[name]) for name in SLOT_COUNTERS}
            counters = {str(name): int(value) for name, value in answer.get("counters", {}).items()}
            failed = int(np.count_nonzero(~succeeded(columns)))
            series = token_series(CLOSED_LOOP, without_first(columns, dropped))
            return SlotRun(durations_ns[dropped:], **spent, counters=counters, failed=failed, series=series)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise WorkerError(f"malformed reply from the worker: {error!r}", where="slot") from error

    def _stall_s(self) -> float:
        if self._stall_timeout_s:
            return self._stall_timeout_s
        slowest_call_s = max((pilot.call_ns for pilot in self._pilots.values()), default=0.0) / 1e9
        return max(STALL_FLOOR_S, STALL_CALLS * slowest_call_s)

    def _on_event(self, event: dict[str, Any]) -> None:
        if "text" in event:
            self._view.phase(str(event["text"]))
        elif "done" in event:
            self._view.progress(int(event["done"]), int(event.get("total", 0)))


T = TypeVar("T")
# Once the processes have ended, their threads see closed pipes and need no longer than this.
LEAVE_S = 15.0


def in_parallel(tasks: Sequence[Callable[[], T]], abandon: Callable[[], None]) -> list[T]:
    """Run each task in a thread of its own and return the results in their order.

    The first failure, or an interrupt, calls `abandon`, which makes the other tasks end; then it is raised. Threads are
    daemons: a thread that still hangs does not keep the program from exiting.
    """
    ended: queue.SimpleQueue[tuple[int, T | None, BaseException | None]] = queue.SimpleQueue()

    def run(number: int, task: Callable[[], T]) -> None:
        try:
            ended.put((number, task(), None))
        except BaseException as error:  # an error in a thread would be printed and lost
            ended.put((number, None, error))

    threads = [
        threading.Thread(target=run, args=(number, task), name=f"tenant-{number + 1}", daemon=True)
        for number, task in enumerate(tasks)
    ]
    results: dict[int, T] = {}
    try:
        for thread in threads:
            thread.start()
        while len(results) < len(threads):
            number, result, error = ended.get()
            if error is not None:
                raise error
            results[number] = result  # type: ignore[assignment]  # without an error it is a T
    except BaseException:
        abandon()
        _join([thread for thread in threads if thread.ident is not None])
        raise
    return [results[number] for number in range(len(threads))]


def _join(threads: Sequence[threading.Thread]) -> None:
    deadline = time.monotonic() + LEAVE_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
