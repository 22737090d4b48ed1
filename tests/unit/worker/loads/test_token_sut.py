"""Token by token: what LoadGen is told and when, and what is recorded of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import pytest

from gputax.plan.cells import Load
from gputax.plan.tokens import FIRST_TOKEN, ITL, LAST_TOKEN, TOKEN_QUERY, TOKEN_TIME, TOKENS, TPOT, TTFT
from gputax.results.columns import without_first
from gputax.results.token_series import token_series
from gputax.worker.loads.recording import Recording
from gputax.worker.loads.sut import SERVER_COLUMNS, STREAM_COLUMNS, SampleLibrary, System
from gputax.worker.loads.token_sut import token_callbacks, token_settings
from gputax.worker.loads.token_times import FIRST_ROWS, TokenTimes, token_times_for
from gputax.worker.samples import SampleArea


class Decoder:
    """Three tokens for each sample, at times that a test can foresee: run r has 1000 r + 10, + 12 and + 20."""

    device, response_address, response_bytes, tokens = "cpu", 4096, 24, 3

    def __init__(self) -> None:
        self.token_ns = np.zeros(3, dtype=np.int64)
        self.runs: list[tuple[int, int]] = []

    def generate(self, first: int, count: int, on_first: Callable[[], None]) -> None:
        self.runs.append((first, count))
        self.token_ns[:] = 1000 * len(self.runs) + np.array([10, 12, 20])
        on_first()

    def load_samples(self, samples: Any) -> None:
        pass


class LoadGen:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[tuple[int, ...]]]] = []

    @staticmethod
    def QuerySampleResponse(*values: int) -> tuple[int, ...]:
        return values

    def FirstTokenComplete(self, responses: list[tuple[int, ...]]) -> None:
        self.told.append(("first", responses))

    def QuerySamplesComplete(self, responses: list[tuple[int, ...]]) -> None:
        self.told.append(("all", responses))


def fail(error: BaseException) -> NoReturn:
    raise error


def system(load: Load, columns: tuple[str, ...]) -> tuple[System, Any, Any, TokenTimes]:
    engine: Any = Decoder()
    loadgen: Any = LoadGen()
    area = SampleArea({"input_ids": np.arange(8).reshape(8, 1)}, 4)
    found = System(loadgen, engine, area, SampleLibrary(area, engine), load, Recording(columns, 16, 8), fail)
    return found, engine, loadgen, TokenTimes(engine)


def test_single_stream_tells_the_first_token_and_then_all_with_their_number() -> None:
    under_test, engine, loadgen, times = system(Load("single-stream"), STREAM_COLUMNS)
    token_callbacks(under_test, engine, times).issue([77], [5])
    assert engine.runs == [(5, 1)]
    assert loadgen.told == [("first", [(77, 4096, 24)]), ("all", [(77, 4096, 24, 3)])]
    assert under_test.recording.to_columns()["end_ns"].tolist() == [1020]


def test_offline_runs_batches_and_gathers_scattered_prompts() -> None:
    under_test, engine, loadgen, times = system(Load("offline", batch_size=2), STREAM_COLUMNS)
    token_callbacks(under_test, engine, times).issue([1, 2, 3, 4, 5], [0, 1, 6, 3, 7])
    assert engine.runs == [(0, 2), (8, 2), (7, 1)]
    assert [len(responses) for _, responses in loadgen.told] == [2, 2, 2, 2, 1, 1]
    assert loadgen.told[1] == ("all", [(1, 4096, 24, 3), (2, 4120, 24, 3)])
    columns = under_test.recording.to_columns()
    columns |= times.to_columns(columns["samples"])
    assert columns[TOKENS].tolist() == [6, 6, 3]
    # A batch is one row, and each of its requests has three tokens: 10 ns for two of them.
    assert token_series("offline", columns)[TPOT].tolist() == [5.0, 5.0, 5.0]


def test_a_failure_of_the_engine_ends_the_load() -> None:
    under_test, engine, _, times = system(Load("single-stream"), STREAM_COLUMNS)
    engine.generate = lambda *_: (_ for _ in ()).throw(RuntimeError("no device"))
    with pytest.raises(RuntimeError, match="no device"):
        token_callbacks(under_test, engine, times).issue([1], [0])


def test_a_server_batch_gives_every_query_its_own_row() -> None:
    under_test, engine, loadgen, times = system(Load("server", batch_size=4), SERVER_COLUMNS)
    callbacks = token_callbacks(under_test, engine, times)
    for number in range(3):
        callbacks.issue([number], [number])
    with callbacks.serving():
        pass
    columns = under_test.recording.to_columns()
    columns |= times.to_columns(np.ones_like(columns["end_ns"]))
    assert columns["batch"].tolist() == [3, 3, 3]
    assert columns[FIRST_TOKEN].tolist() == [1010] * 3
    assert columns[TOKENS].tolist() == [3, 3, 3]
    assert [kind for kind, _ in loadgen.told] == ["first", "all"]


def test_times_grow_beyond_the_first_rows() -> None:
    engine: Any = Decoder()
    times = TokenTimes(engine)
    engine.token_ns[:] = (1, 2, 4)
    times.add(FIRST_ROWS - 1, 2)
    columns = times.to_columns(np.ones(FIRST_ROWS + 1, dtype=np.int64))
    assert columns[LAST_TOKEN][-3:].tolist() == [0, 4, 4]
    assert columns[TOKEN_TIME][-3:].tolist() == [1, 2, 4]


def test_dropped_runs_take_their_tokens_with_them() -> None:
    engine: Any = Decoder()
    times = TokenTimes(engine)
    for row in range(3):
        engine.generate(0, 1, lambda: None)
        times.add(row)
    recorded = {name: np.array([1000, 2000, 3000]) for name in ("start_ns", "end_ns")}
    columns = without_first({**recorded, **times.to_columns(np.ones(3, dtype=np.int64))}, 1)
    assert columns[TOKEN_QUERY].tolist() == [0, 0, 0, 1, 1, 1]
    series = token_series("saturate", columns)
    assert series[TTFT].tolist() == [10.0, 10.0]
    assert series[ITL].tolist() == [2.0, 8.0, 2.0, 8.0]


def test_an_engine_without_tokens_has_no_times() -> None:
    assert token_times_for(object()) is None  # type: ignore[arg-type]


def test_a_server_is_judged_by_both_bounds() -> None:
    class Settings:
        use_token_latencies, ttft_latency, tpot_latency = False, 0, 0

    settings = Settings()
    token_settings(settings, ttft_ns=500, tpot_ns=30)
    assert (settings.use_token_latencies, settings.ttft_latency, settings.tpot_latency) == (True, 500, 30)
