"""What every engine that generates tokens must do; and what the one of ONNX Runtime computes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gputax.errors import UsageError
from gputax.plan.engines import ENGINES, parse_engine
from gputax.plan.language_models import decoder_size
from gputax.worker.engines import load_engine
from gputax.worker.engines.engine import Engine, EngineRequest, Generates
from gputax.worker.samples import SampleArea
from gputax.worker.workloads import load_workload
from gputax.worker.workloads.workload import seeded_state
from tests.builders import numpy_llama

NAME = "llm-tiny:layers=2,hidden=64,vocabulary=101,prompt=6,output=5"
MAX_BATCH = 3
GENERATING = [name for name, kind in ENGINES.items() if kind.generates]


def request(spec: str, **changes: Any) -> EngineRequest:
    engine = parse_engine(spec)
    values: dict[str, Any] = {
        "workload": NAME, "options": engine.options, "device": "cpu", "precision": "fp32", "threads": 1,
        "max_batch": MAX_BATCH,
    }  # fmt: skip
    return EngineRequest(**{**values, **changes})


def loaded(name: str) -> tuple[Any, SampleArea]:
    engine = load_engine(name, request(name))
    area = SampleArea(engine.adapt_inputs(load_workload(NAME).synthetic_inputs(8, 7)), MAX_BATCH)
    engine.load_samples(area.arrays)
    return engine, area


@pytest.fixture(scope="module", params=GENERATING)
def generating(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, SampleArea]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUTAX_MODELS", str(tmp_path_factory.mktemp("models")))
        engine, area = loaded(request.param)
        yield engine, area
        engine.close()


class TestGeneratingEngine:
    def test_says_how_many_tokens_and_when(self, generating: tuple[Any, SampleArea]) -> None:
        engine: Any = generating[0]
        assert isinstance(generating[0], Generates)
        assert engine.tokens == 5
        before = time.perf_counter_ns()
        engine.run(0, 2)
        assert len(engine.token_ns) == 5
        assert before < engine.token_ns[0]
        assert (np.diff(engine.token_ns) > 0).all()
        assert engine.token_ns[-1] <= time.perf_counter_ns()

    def test_tells_of_the_first_token_when_it_is_there(self, generating: tuple[Any, SampleArea]) -> None:
        engine, area = generating
        seen: list[int] = []
        engine.generate(area.gather([5, 0]), 2, lambda: seen.append(time.perf_counter_ns()))
        assert len(seen) == 1
        assert engine.token_ns[0] <= seen[0] <= engine.token_ns[1]


@pytest.fixture(scope="module")
def onnx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, SampleArea]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUTAX_MODELS", str(tmp_path_factory.mktemp("models")))
        engine, area = loaded("onnx")
        yield engine, area
        engine.close()


def expected(ids: Any) -> list[int]:
    size = decoder_size(NAME)
    return numpy_llama.generated(ids, size.output, seeded_state(load_workload(NAME), 7), size)


def test_tokens_are_those_of_the_description_in_every_batch(onnx: tuple[Any, SampleArea]) -> None:
    engine, area = onnx
    wanted = [expected(ids) for ids in area.arrays["input_ids"][:4]]
    assert len({tuple(tokens) for tokens in wanted}) == 4, "equal answers would be equal for the wrong reasons"
    # Batch sizes in turn: what one leaves in the cache must not reach the next.
    for first, count in ((0, 1), (1, 3), (3, 1), (0, 2), (2, 1)):
        engine.run(first, count)
        assert engine.answers[:count].tolist() == wanted[first : first + count]


def test_gathered_rows_are_read_again_each_time(onnx: tuple[Any, SampleArea]) -> None:
    engine, area = onnx
    for row in (6, 2):
        engine.run(area.gather([row]), 1)
        assert engine.answers[0].tolist() == expected(area.arrays["input_ids"][row])


def test_logits_of_the_last_step_equal_those_of_the_whole_text(onnx: tuple[Any, SampleArea]) -> None:
    engine, area = onnx
    engine.run(0, 1)
    text = np.concatenate([area.arrays["input_ids"][0], engine.answers[0][:-1]])
    wanted = numpy_llama.logits(text, seeded_state(load_workload(NAME), 7), decoder_size(NAME))
    assert np.abs(engine.last_logits(1)[0] - wanted).max() < 1e-4


def test_responses_are_the_tokens(onnx: tuple[Any, SampleArea]) -> None:
    import ctypes

    engine, area = onnx
    engine.run(0, 2)
    assert engine.response_bytes == 5 * 8
    second = (ctypes.c_int64 * 5).from_address(engine.response_address + engine.response_bytes)
    assert list(second) == expected(area.arrays["input_ids"][1])


def test_facts_name_the_tokens(onnx: tuple[Any, SampleArea]) -> None:
    facts = onnx[0].facts()
    assert (facts["engine"], facts["provider"]) == ("onnx", "CPUExecutionProvider")
    assert (facts["tokens_in"], facts["tokens_out"], facts["weights"]) == (6, 5, "seeded")


def test_what_a_language_model_has_not_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot run a language model"):
        load_engine("tinygrad", request("tinygrad"))
    with pytest.raises(UsageError, match="seeded weights only"):
        load_engine("onnx", request("onnx", weights="official"))
    with pytest.raises(UsageError, match="copies=excluded"):
        load_engine("onnx", request("onnx:copies=excluded"))


def test_the_synthetic_decoder_takes_the_programmed_time() -> None:
    engine: Engine = load_engine("synthetic", request("synthetic:latency_us=3000,token_us=1000"))
    assert isinstance(engine, Generates)
    best_first, best_gap = 10**12, 10**12
    for _ in range(5):  # the best of five: a busy machine only adds
        begin = time.perf_counter_ns()
        engine.run(0, 1)
        best_first = min(best_first, int(engine.token_ns[0]) - begin)
        best_gap = min(best_gap, int(engine.token_ns[-1] - engine.token_ns[0]) // 4)
    assert best_first >= 3_000_000
    assert best_gap >= 900_000
