"""Engines that ask a server, against real servers on loopback: what they measure, and what every fault becomes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from gputax.errors import EngineError, GputaxError, PreflightError, UsageError
from gputax.measure.summary import Figures, summarise
from gputax.plan.cells import Load
from gputax.plan.engines import parse_engine
from gputax.worker.engines import load_engine
from gputax.worker.engines.engine import EngineRequest
from gputax.worker.loads import requests
from tests.standins.infer_grpc import InferServer
from tests.standins.model_server import Behaviour, ModelServer

KEY = "sk-not-for-anyone"


@contextmanager
def engine_of(spec: str) -> Iterator[Any]:
    parsed = parse_engine(spec)
    engine = load_engine(parsed.name, EngineRequest("server", parsed.options, "auto", "fp32", 1, 1))
    try:
        yield engine
    finally:
        engine.close()


def refusal_of(spec: str, kind: type[GputaxError] = GputaxError) -> GputaxError:
    with pytest.raises(kind) as caught, engine_of(spec):
        pass
    return caught.value


def applied(engine: Any, load: Load) -> tuple[Figures, requests.RequestRecording]:
    recording = requests.recording_for(load)
    requests.apply(engine, load, recording)
    return summarise(load.scenario, recording.to_columns(streams=engine.streams)), recording


OPEN = Load("server", min_queries=40, target_qps=400.0)


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
@pytest.mark.parametrize("scenario", ["server", "single-stream", "saturate"])
def test_tokens_of_a_stream_are_counted_and_timed(endpoint: str, scenario: str) -> None:
    load = Load(scenario, min_queries=40, target_qps=400.0, batch_size=4 if scenario == "saturate" else 1)
    with ModelServer() as server, engine_of(f"openai:{server.url},output_tokens=5,endpoint={endpoint}") as engine:
        figures, recording = applied(engine, load)
        assert server.seen[0]["max_tokens"] == 5
    assert (figures.queries, figures.failed) == (len(recording.answers), 0)
    assert figures.queries >= 40
    assert figures.tokens is not None
    assert figures.tokens.tokens == 5 * figures.queries


def test_latency_and_ttft_count_from_the_schedule_and_never_before_it() -> None:
    with ModelServer(Behaviour(ttft_s=0.05, tpot_s=0.01)) as server, engine_of(f"openai:{server.url}") as engine:
        recording = requests.recording_for(OPEN)
        requests.apply(engine, OPEN, recording)
        columns = recording.to_columns(streams=True)
    assert (columns["issued_ns"] >= columns["scheduled_ns"]).all()
    assert (columns["first_token_ns"] - columns["scheduled_ns"] >= 50_000_000).all()
    assert (columns["last_token_ns"] - columns["scheduled_ns"] >= 680_000_000).all()
    assert (np.diff(columns["scheduled_ns"]) >= 0).all()


def test_an_open_loop_does_not_wait_for_answers() -> None:
    """A tenth of a second for each answer, and all forty sent long before a one-at-a-time loop would be done."""
    with ModelServer(Behaviour(ttft_s=0.5)) as server, engine_of(f"openai:{server.url},output_tokens=1") as engine:
        figures, _ = applied(engine, OPEN)
    assert figures.duration_s < 40 * 0.5 / 2


def test_without_a_count_of_the_server_chunks_are_taken_for_tokens_and_that_is_said() -> None:
    with ModelServer(Behaviour(fault="no-usage")) as server, engine_of(f"openai:{server.url}") as engine:
        assert engine.facts()["tokens_counted"] == {"unit": "chunk", "by": "chunks"}
    with ModelServer() as server, engine_of(f"openai:{server.url}") as engine:
        assert engine.facts()["tokens_counted"] == {"unit": "chunk", "by": "usage"}


def test_a_server_without_a_stream_gives_latencies_and_no_token_times() -> None:
    with ModelServer() as server, engine_of(f"openai:{server.url},stream=false") as engine:
        figures, _ = applied(engine, OPEN)
    assert figures.queries == 40
    assert figures.tokens is None


def test_the_device_is_never_guessed() -> None:
    with ModelServer() as server, engine_of(f"openai:{server.url}") as engine:
        assert engine.device == "server"
        assert engine.facts()["device_name"] == "server, device unknown"


@pytest.mark.parametrize("fault", ["429", "500", "cut", "garbage", "not-json", "error-event", "empty"])
def test_a_fault_of_some_requests_is_data(fault: str) -> None:
    behaviour = Behaviour(fault=fault, fault_every=10)
    with ModelServer(behaviour) as server, engine_of(f"openai:{server.url},output_tokens=4") as engine:
        figures, recording = applied(engine, OPEN)
        log = requests.failure_log(engine, recording.answers)
    assert 3 <= figures.failed <= 6
    assert figures.queries == 40 - figures.failed
    assert "failed_requests.tsv" in log


def test_a_kept_connection_that_closes_without_a_byte_is_tried_again_on_a_new_one() -> None:
    """Nobody can tell a server's idle time-out from a fault; on a new connection a close is a failure."""
    behaviour = Behaviour(fault="closes", fault_every=10)
    with ModelServer(behaviour) as server, engine_of(f"openai:{server.url},output_tokens=4") as engine:
        figures, _ = applied(engine, OPEN)
        assert figures.queries + figures.failed == 40
        assert server.requests > 40


@pytest.mark.parametrize(
    ("fault", "what", "next_step"),
    [
        ("closes", "closed the connection", "log"),
        ("429", "HTTP 429", "--qps"),
        ("500", "HTTP 500", "curl"),
        ("cut", "middle of the response", "log"),
        ("garbage", "not what the protocol says", "curl"),
        ("error-event", "out of memory", "curl"),
        ("empty", "without a single token", "log"),
        ("slow", "no complete response in time", "timeout_s"),
    ],
)
def test_a_fault_of_every_request_is_refused_before_anything_is_measured(fault: str, what: str, next_step: str) -> None:
    with ModelServer(Behaviour(fault=fault)) as server:
        error = refusal_of(f"openai:{server.url},timeout_s=1.5", PreflightError)
    assert what in error.what
    assert next_step in error.next_step
    assert error.where.startswith("http://127.0.0.1:")


def test_a_server_that_ignores_max_tokens_is_named() -> None:
    behaviour = Behaviour(fault="ignores-max-tokens")
    with ModelServer(behaviour) as server, engine_of(f"openai:{server.url},output_tokens=4") as engine:
        _, recording = applied(engine, OPEN)
        (notice,) = requests.answer_notices(engine, recording.answers)
    assert "40 of 40 answers are longer than the 4 tokens asked for (up to 12)" in notice.text


def test_a_wrong_model_name_points_to_the_list() -> None:
    with ModelServer() as server:
        error = refusal_of(f"openai:{server.url},model=other")
    assert "The model other does not exist" in error.what
    assert error.next_step.endswith("/v1/models")


def test_nothing_at_the_port_is_said() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for engine in ("openai", "kserve"):
        error = refusal_of(f"{engine}:http://127.0.0.1:{port},model=tiny", PreflightError)
        assert "nothing answers" in error.what
        assert "start the server" in error.next_step


def test_tls_with_a_server_without_tls_is_said() -> None:
    with ModelServer() as server:
        error = refusal_of(f"openai:{server.url.replace('http:', 'https:')},timeout_s=5", PreflightError)
    assert "TLS" in error.what
    assert "use http://" in error.next_step


def test_a_grpc_port_asked_by_http_is_recognised() -> None:
    with InferServer() as server:
        error = refusal_of(f"kserve:{server.url.replace('grpc:', 'http:')},model=tiny,timeout_s=5", PreflightError)
    assert f"kserve:grpc://127.0.0.1:{server.port}" in error.next_step


def test_an_http_port_asked_by_grpc_is_recognised() -> None:
    with ModelServer() as server:
        error = refusal_of(f"kserve:grpc://127.0.0.1:{server.port},model=tiny,timeout_s=5", GputaxError)
    assert "kserve:http://" in error.next_step or "timeout_s" in error.next_step


def test_a_server_that_dies_ends_the_load_with_an_error_instead_of_a_hang() -> None:
    server = ModelServer()
    with engine_of(f"openai:{server.url},output_tokens=1") as engine:
        server.close()
        with pytest.raises(EngineError, match="the last 200 requests all failed"):
            applied(engine, Load("single-stream", min_queries=100_000, min_duration_s=60.0))


class TestTheKey:
    def test_comes_from_the_environment_and_is_needed_where_the_server_wants_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with ModelServer(Behaviour(key=KEY)) as server:
            monkeypatch.delenv("OPENAI_API_KEY", raising=False)
            error = refusal_of(f"openai:{server.url}", PreflightError)
            assert "HTTP 401" in error.what
            assert "export OPENAI_API_KEY" in error.next_step
            monkeypatch.setenv("MY_KEY", KEY)
            with engine_of(f"openai:{server.url},key_variable=MY_KEY") as engine:
                figures, _ = applied(engine, OPEN)
                assert KEY not in repr(engine.facts())
        assert figures.queries == 40

    def test_is_redacted_where_the_server_repeats_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        behaviour = Behaviour(fault="repeats-key", fault_every=5)
        with ModelServer(behaviour) as server, engine_of(f"openai:{server.url}") as engine:
            _, recording = applied(engine, OPEN)
            log = requests.failure_log(engine, recording.answers)
        assert "cannot use" in log["failed_requests.tsv"]
        assert KEY not in log["failed_requests.tsv"]
        with ModelServer(Behaviour(fault="repeats-key")) as server:
            error = refusal_of(f"openai:{server.url}", GputaxError)
        assert KEY not in str(error.to_dict())

    def test_in_the_address_is_refused(self) -> None:
        with pytest.raises(UsageError, match="credentials"), engine_of(f"openai:http://user:{KEY}@127.0.0.1:1"):
            pass


class TestKserve:
    @pytest.mark.parametrize("protocol", ["http", "grpc"])
    @pytest.mark.parametrize("scenario", ["server", "single-stream", "saturate"])
    def test_requests_are_answered(self, protocol: str, scenario: str) -> None:
        load = Load(scenario, min_queries=40, target_qps=300.0, batch_size=4 if scenario == "saturate" else 1)
        with ModelServer() as http, InferServer() as grpc_server:
            url = http.url if protocol == "http" else grpc_server.url
            with engine_of(f"kserve:{url},model=tiny") as engine:
                figures, _ = applied(engine, load)
                assert engine.facts()["server_name"] == "stand-in 1"
                assert engine.facts()["input_shapes"] == {"x": [1, 4]}
            if protocol == "grpc":
                asked = grpc_server.requests[-1]
                (tensor,) = asked.inputs
                assert (tensor.name, tensor.datatype, list(tensor.shape)) == ("x", "FP32", [1, 4])
                assert len(asked.raw_input_contents[0]) == 16
        assert figures.failed == 0
        assert figures.queries >= 40

    def test_shapes_can_be_given_and_wrong_ones_are_refused(self) -> None:
        with ModelServer() as server:
            with engine_of(f"kserve:{server.url},model=tiny,shape=x:3x4") as engine:
                assert engine.facts()["input_shapes"] == {"x": [3, 4]}
            with pytest.raises(UsageError, match="no input y"), engine_of(f"kserve:{server.url},model=tiny,shape=y:1"):
                pass

    def test_failures_over_grpc_are_data(self) -> None:
        with InferServer(fail_every=10) as server, engine_of(f"kserve:{server.url},model=tiny") as engine:
            figures, recording = applied(engine, OPEN)
            log = requests.failure_log(engine, recording.answers)
        assert 3 <= figures.failed <= 6
        assert "RESOURCE_EXHAUSTED" in log["failed_requests.tsv"]

    @pytest.mark.parametrize("protocol", ["http", "grpc"])
    def test_a_wrong_model_is_said(self, protocol: str) -> None:
        with ModelServer() as http, InferServer() as grpc_server:
            error = refusal_of(f"kserve:{http.url if protocol == 'http' else grpc_server.url},model=other", GputaxError)
        assert "unknown model other" in error.what

    def test_the_model_must_be_named(self) -> None:
        with pytest.raises(UsageError, match="no list of models"), engine_of("kserve:http://127.0.0.1:1"):
            pass


def test_a_connection_that_the_server_closed_meanwhile_is_not_a_failure() -> None:
    """Every answer is followed by a close that the headers do not announce, as after a server's idle time-out."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    body = b'{"choices":[{"text":"x"}],"usage":{"completion_tokens":1}}'

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        with engine_of(f"openai:http://127.0.0.1:{port},model=tiny,stream=false") as engine:
            figures, _ = applied(engine, Load("single-stream", min_queries=30))
    finally:
        listener.close()
    assert (figures.queries, figures.failed) == (30, 0)
