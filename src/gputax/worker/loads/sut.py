"""The system under test as LoadGen sees it: callbacks that run the engine and record when."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from queue import Empty, SimpleQueue
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from gputax.plan.cells import Load
from gputax.worker.engines.engine import Engine
from gputax.worker.loads.recording import Recording
from gputax.worker.samples import SampleArea

STREAM_COLUMNS = ("start_ns", "end_ns", "samples")
OFFLINE_COLUMNS = STREAM_COLUMNS
SERVER_COLUMNS = ("issued_ns", "end_ns", "batch")
OnFailure = Callable[[BaseException], NoReturn]
Issue = Callable[[list[int], list[int]], None]
# clock, run, complete, response, on_failure
Calls = tuple[Callable[[], int], Callable[[int, int], None], Callable[[list[Any]], None], Callable[..., Any], OnFailure]


@dataclass(frozen=True)
class Callbacks:
    """The callbacks for LoadGen, and the threads that must run meanwhile."""

    issue: Issue
    serving: Callable[[], Any]
    flush: Callable[[], None] = lambda: None


class SampleLibrary:
    """LoadGen's view of the samples: it refers to them by index, we keep them in the order in which it loads them."""

    def __init__(self, area: SampleArea, engine: Engine) -> None:
        self.position_of = area.position_of
        self._area = area
        self._engine = engine

    def load(self, indices: list[int]) -> None:
        """Sort the rows into LoadGen's order, so that its consecutive samples are consecutive in memory."""
        # Multi-stream pads the list with repeats at its end; the first mention of an index decides.
        unique = list(dict.fromkeys(indices))
        if self._area.reorder(unique):
            self._engine.load_samples(self._area.arrays)

    def unload(self, indices: list[int]) -> None:
        """Keep them: the same samples serve the next load."""


@dataclass(frozen=True)
class System:
    """State for the callbacks of one load."""

    loadgen: Any
    engine: Engine
    area: SampleArea
    library: SampleLibrary
    load: Load
    recording: Recording
    on_failure: OnFailure

    @property
    def calls(self) -> Calls:
        """The functions called for every query, as local names: attribute look-ups would cost time."""
        run, loadgen = self.engine.run, self.loadgen
        return time.perf_counter_ns, run, loadgen.QuerySamplesComplete, loadgen.QuerySampleResponse, self.on_failure

    @property
    def response(self) -> tuple[int, int]:
        """Address and size of the first response; those of further samples follow it."""
        return self.engine.response_address, self.engine.response_bytes


def callbacks_for(system: System) -> Callbacks:
    """Return the callbacks of the load's scenario."""
    match system.load.scenario:
        case "single-stream":
            return Callbacks(_single_stream(system), no_threads)
        case "server":
            batcher = Batcher(system)
            return Callbacks(batcher.issue, batcher.serving)
        case "multi-stream":
            return Callbacks(_multi_stream(system), no_threads)
    return Callbacks(_offline(system), no_threads)


@contextmanager
def no_threads() -> Iterator[None]:
    """Start none: queries are answered where they are issued."""
    yield


def _single_stream(system: System) -> Issue:
    """One sample, run where it is issued: passing it to a thread would add 2 µs and jitter."""
    clock, run, complete, response, on_failure = system.calls
    address, size = system.response
    position_of, recording = system.library.position_of, system.recording

    def issue(ids: list[int], indices: list[int]) -> None:
        start_ns = clock()
        try:
            run(position_of.item(indices[0]), 1)
        except BaseException as error:
            on_failure(error)
        end_ns = clock()
        complete([response(ids[0], address, size)])
        recording.add_run(start_ns, end_ns, 1)

    return issue


def _multi_stream(system: System) -> Issue:
    """A few samples per query: plain lists beat NumPy here (2 µs instead of 50 µs with cold caches)."""
    clock, run, complete, response, on_failure = system.calls
    address, size = system.response
    area, library, recording = system.area, system.library, system.recording
    position_of: list[int] = []

    def issue(ids: list[int], indices: list[int]) -> None:
        if not position_of:
            position_of.extend(library.position_of.tolist())
        start_ns = clock()
        count = len(ids)
        try:
            positions = [position_of[index] for index in indices]
            first = positions[0]
            if positions != list(range(first, first + count)):
                first = area.gather(positions)
            run(first, count)
        except BaseException as error:
            on_failure(error)
        end_ns = clock()
        complete(list(map(response, ids, range(address, address + count * size, size), repeat(size))))
        recording.add_run(start_ns, end_ns, count)

    return issue


def _offline(system: System) -> Issue:
    """One query with all samples, split into batches that run in order where they are issued."""
    clock, run, complete, response, on_failure = system.calls
    address, size = system.response
    area, library, recording = system.area, system.library, system.recording
    batch_size = system.load.batch_size

    def issue(ids: list[int], indices: list[int]) -> None:
        positions = library.position_of[indices]
        firsts, scattered = chunk_starts(positions, batch_size)
        for chunk, first in enumerate(firsts):
            low = chunk * batch_size
            chunk_ids = ids[low : low + batch_size]
            count = len(chunk_ids)
            start_ns = clock()
            try:
                run(area.gather(positions[low : low + count]) if scattered[chunk] else first, count)
            except BaseException as error:
                on_failure(error)
            end_ns = clock()
            complete(list(map(response, chunk_ids, range(address, address + count * size, size), repeat(size))))
            recording.add_run(start_ns, end_ns, count)

    return issue


def chunk_starts(positions: npt.NDArray[np.int64], batch_size: int) -> tuple[list[int], list[bool]]:
    """Return each chunk's first position and whether its samples are scattered, for all chunks at once."""
    count = len(positions)
    lows = np.arange(0, count, batch_size)
    firsts = positions[lows]
    offsets = np.arange(count) % batch_size
    misplaced = positions != np.repeat(firsts, batch_size)[:count] + offsets
    return firsts.tolist(), np.logical_or.reduceat(misplaced, lows).tolist()


class Batcher:
    """Server: LoadGen's thread only enqueues; one thread drains the queue into the largest batch it finds."""

    def __init__(self, system: System) -> None:
        self._queue: SimpleQueue[tuple[int, int, int] | None] = SimpleQueue()
        self._loadgen, self._engine = system.loadgen, system.engine
        self._area, self._library, self._recording = system.area, system.library, system.recording
        self._max_batch = system.load.batch_size
        self._max_wait_ns = system.load.max_wait_us * 1000
        self._on_failure = system.on_failure
        put, clock = self._queue.put, time.perf_counter_ns

        def issue(ids: list[int], indices: list[int]) -> None:
            put((ids[0], indices[0], clock()))

        self.issue: Issue = issue

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Keep the serving thread alive while LoadGen runs."""
        thread = threading.Thread(target=self._serve, name="batcher", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._queue.put(None)
            thread.join()

    def _serve(self) -> None:
        get = self._queue.get
        try:
            while (first := get()) is not None:
                self._run_batch(self._drain(first))
        except BaseException as error:
            self._on_failure(error)

    def _drain(self, first: tuple[int, int, int]) -> list[tuple[int, int, int]]:
        """Take the waiting queries, up to the largest batch; delay at most `max_wait_us`."""
        get = self._queue.get
        batch = [first]
        waiting = min(self._queue.qsize(), self._max_batch - 1)
        # The end mark is enqueued only after LoadGen has seen every completion, so it is never in this batch.
        batch.extend(get() for _ in range(waiting))  # type: ignore[misc]
        deadline_ns = first[2] + self._max_wait_ns
        while len(batch) < self._max_batch and (remaining_ns := deadline_ns - time.perf_counter_ns()) > 0:
            try:
                item = get(timeout=remaining_ns / 1e9)
            except Empty:
                break
            if item is None:
                self._queue.put(None)
                break
            batch.append(item)
        return batch

    def _run_batch(self, batch: list[tuple[int, int, int]]) -> None:
        ids, indices, issued = zip(*batch, strict=True)
        count = len(batch)
        self._engine.run(self._first_row(indices), count)
        end_ns = time.perf_counter_ns()
        address, size = self._engine.response_address, self._engine.response_bytes
        addresses = range(address, address + count * size, size)
        self._record(issued, end_ns, count)
        self._loadgen.QuerySamplesComplete(list(map(self._loadgen.QuerySampleResponse, ids, addresses, repeat(size))))

    def _first_row(self, indices: tuple[int, ...]) -> int:
        """Return where the samples of a batch start, gathered if there are several."""
        position_of = self._library.position_of
        return position_of.item(indices[0]) if len(indices) == 1 else self._area.gather(position_of[list(indices)])

    def _record(self, issued: tuple[int, ...], end_ns: int, count: int) -> None:
        recording = self._recording
        row = recording.count
        while row + count > recording.capacity:
            recording.grow()
        issued_column, ends, batches = recording.views
        for offset in range(count):
            issued_column[row + offset] = issued[offset]
            ends[row + offset] = end_ns
            batches[row + offset] = count
        recording.count = recording.samples_done = row + count
