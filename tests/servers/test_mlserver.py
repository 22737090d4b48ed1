"""MLServer, a real server of the v2 protocol that is not ours, asked over HTTP and gRPC on loopback."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.servers

Gputax = Callable[..., subprocess.CompletedProcess[str]]
START_S = 300.0
DELAY_MS = 20.0
RUNTIME = """
import asyncio
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Doubling(MLModel):
    async def load(self):
        return True

    async def predict(self, payload):
        values = self.decode(payload.inputs[0], default_codec=NumpyCodec)
        if values.shape != (1, 4):
            raise ValueError(f"unexpected shape {values.shape}")
        await asyncio.sleep(DELAY_S)
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("y", values * 2)])
"""
SETTINGS = {
    "name": "doubling",
    "implementation": "doubling.Doubling",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 4]}],
}


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Start the server with a model that answers after a programmed delay; ends with the tests."""
    binary = Path(os.environ.get("GPUTAX_TEST_SERVERS", ""), "mlserver")
    if not binary.is_file():
        pytest.skip("needs MLServer: make test-servers")
    folder = tmp_path_factory.mktemp("model")
    http_port, grpc_port, metrics_port = free_ports(3)
    (folder / "doubling.py").write_text(RUNTIME.replace("DELAY_S", str(DELAY_MS / 1000)))
    (folder / "model-settings.json").write_text(json.dumps(SETTINGS))
    ports = {"http_port": http_port, "grpc_port": grpc_port, "metrics_port": metrics_port}
    (folder / "settings.json").write_text(json.dumps({**ports, "host": "127.0.0.1", "parallel_workers": 0}))
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [str(binary.absolute()), "start", str(folder)],
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": str(folder)},
        )
        try:
            _wait(server, http_port, folder / "log")
            yield {"http": f"http://127.0.0.1:{http_port}", "grpc": f"grpc://127.0.0.1:{grpc_port}"}
        finally:
            server.terminate()
            server.wait(60)


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and server.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("GET", "/v2/models/doubling/ready")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.5)
        finally:
            connection.close()
    pytest.fail(f"MLServer did not start: {log.read_text()[-2000:]}")


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_run_finds_the_servers_name_and_its_delay(
    gputax: Gputax, urls: dict[str, str], tiny_suite: str, tmp_path: Path, protocol: str
) -> None:
    engine = f"kserve:{urls[protocol]},model=doubling"
    words = ("--suite", tiny_suite, "--scenario", "single-stream,server", "--qps", "10", "--accept-disturbed")
    done = gputax("run", "--engine", engine, *words, "--out", "o", timeout=300)
    assert done.returncode in (0, 5), done.stderr
    record = json.loads((tmp_path / "o/benchmark_results.json").read_text())
    assert not record["failures"]
    (facts,) = record["fingerprint"]["setups"].values()
    assert facts["server_name"].startswith("mlserver ")
    assert facts["input_shapes"] == {"x": [1, 4]}
    assert {each["scenario"] for each in record["benchmarks"]} == {"single_stream", "server"}
    for benchmark in record["benchmarks"]:
        assert benchmark["error_rate"] == 0
        assert benchmark["latency_mean_ms"] >= DELAY_MS


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_model_that_it_does_not_have_is_refused_with_its_words(
    gputax: Gputax, urls: dict[str, str], tiny_suite: str, protocol: str
) -> None:
    engine = f"kserve:{urls[protocol]},model=tripling"
    done = gputax("run", "--engine", engine, "--suite", tiny_suite, "--scenario", "single-stream", timeout=300)
    assert done.returncode == 3, done.stderr
    assert "tripling" in done.stderr


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_what_the_model_refuses_is_an_error_before_the_measurement(
    gputax: Gputax, urls: dict[str, str], tiny_suite: str, protocol: str
) -> None:
    engine = f"kserve:{urls[protocol]},model=doubling,shape=x:2x4"
    done = gputax("run", "--engine", engine, "--suite", tiny_suite, "--scenario", "single-stream", timeout=300)
    assert done.returncode == 3, done.stderr
    assert "unexpected shape" in done.stderr
