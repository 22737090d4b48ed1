"""The system under test that answers token by token: LoadGen hears of the first token, and of the last one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import repeat
from typing import Any

from gputax.worker.engines.engine import Generates
from gputax.worker.loads.recording import Recording
from gputax.worker.loads.sut import Batcher, Callbacks, System, chunk_starts, no_threads
from gputax.worker.loads.token_times import TokenTimes


class TokenSystem:
    """Generates the answers of one load's queries, one batch after the other."""

    def __init__(self, system: System, engine: Generates, times: TokenTimes) -> None:
        self._system, self._engine, self._times = system, engine, times
        self._recording: Recording = system.recording

    def issue(self, ids: list[int], indices: list[int]) -> None:
        """Answer one query: single-stream's sample, multi-stream's few, or all of offline's, batch by batch."""
        start_ns = time.perf_counter_ns()
        system = self._system
        positions = system.library.position_of[indices]
        size = system.load.batch_size if system.load.scenario == "offline" else len(ids)
        firsts, scattered = chunk_starts(positions, size)
        for chunk, first in enumerate(firsts):
            low = chunk * size
            chunk_ids = ids[low : low + size]
            try:
                if scattered[chunk]:
                    first = system.area.gather(positions[low : low + size])
                self.answer(first, chunk_ids)
            except BaseException as error:
                system.on_failure(error)
            row = self._recording.count
            self._recording.add_run(start_ns, int(self._engine.token_ns[-1]), len(chunk_ids))
            self._times.add(row)
            start_ns = time.perf_counter_ns()

    def answer(self, first: int, ids: Sequence[int]) -> None:
        """Generate the rows from `first` on, and complete their queries."""
        loadgen, engine = self._system.loadgen, self._engine
        response = loadgen.QuerySampleResponse
        address, size, count = engine.response_address, engine.response_bytes, len(ids)
        addresses = range(address, address + count * size, size)

        def on_first() -> None:
            loadgen.FirstTokenComplete(list(map(response, ids, addresses, repeat(size))))

        engine.generate(first, count, on_first)
        whole = list(map(response, ids, addresses, repeat(size), repeat(engine.tokens)))
        loadgen.QuerySamplesComplete(whole)


class TokenBatcher(Batcher):
    """Server: a batch is what waits when the last one is done; its requests get their tokens in step."""

    def __init__(self, system: System, tokens: TokenSystem, engine: Generates, times: TokenTimes) -> None:
        super().__init__(system)
        self._tokens, self._generating, self._times = tokens, engine, times

    def _run_batch(self, batch: list[tuple[int, int, int]]) -> None:
        ids, indices, issued = zip(*batch, strict=True)
        row = self._recording.count
        self._tokens.answer(self._first_row(indices), ids)
        self._record(issued, int(self._generating.token_ns[-1]), len(batch))
        self._times.add(row, len(batch))


def token_callbacks(system: System, engine: Generates, times: TokenTimes) -> Callbacks:
    """Return the callbacks of the load's scenario for an engine that generates tokens."""
    tokens = TokenSystem(system, engine, times)
    if system.load.scenario != "server":
        return Callbacks(tokens.issue, no_threads)
    batcher = TokenBatcher(system, tokens, engine, times)
    return Callbacks(batcher.issue, batcher.serving)


def token_settings(settings: Any, *, ttft_ns: int, tpot_ns: int) -> None:
    """Let LoadGen judge a server by its tokens; the other scenarios only report them."""
    settings.use_token_latencies = True
    settings.ttft_latency = ttft_ns
    settings.tpot_latency = tpot_ns
