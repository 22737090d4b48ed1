"""A worker shows the same metrics as a tenant where the variables ask for them: so Prometheus sees `gputax share`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gputax.plan.cells import Load, Setup
from gputax.worker.protocol import decode_array

SETUP = Setup("resnet50", engine="synthetic:latency_us=2000", sample_count=4, max_batch=4).to_dict()
PORT_TRIES = 3


@contextmanager
def worker(**variables: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "gputax.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **variables},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(process: subprocess.Popen[bytes], **request: Any) -> dict[str, Any]:
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps({"id": 1, **request}).encode() + b"\n")
    process.stdin.flush()
    while "event" in (message := json.loads(process.stdout.readline())):
        pass
    answer: dict[str, Any] = message
    return answer


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def serving_worker(**names: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A worker that serves its metrics, and their port: another one where somebody took it between look and start."""
    for _ in range(PORT_TRIES):
        port = free_port()
        variables = {"GPUTAX_METRICS_PORT": str(port), "GPUTAX_METRICS_ADDRESS": "127.0.0.1"}
        with worker(**variables, **names) as process:
            # What cannot be prepared leaves the worker as it was, but it tells of the port first.
            refused = ask(process, op="prepare", setup={**SETUP, "device": "cuda"})["error"]["what"]
            if f"taken: {port}" not in refused:
                yield process, port
                return
    pytest.fail(f"{PORT_TRIES} free ports in a row were taken before the worker could have them")


def scraped(port: int) -> dict[str, tuple[dict[str, str], float]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {each.name: (each.labels, each.value) for family in families for each in family.samples}


def test_every_run_of_saturate_is_in_the_histogram() -> None:
    names = {"GPUTAX_TECHNIQUE": "time-slicing", "GPUTAX_IMAGE": "i:1", "GPUTAX_POD": "p-0", "GPUTAX_NODE": "n"}
    with serving_worker(**names) as (process, port):
        assert ask(process, op="describe", about="clock")["result"], "it answers while it serves"
        assert scraped(port)["inferences_total"][1] == 0
        assert ask(process, op="prepare", setup=SETUP)["result"]["device"] == "cpu"
        labels = scraped(port)["gputax_tenant_info"][0]
        total_ns = runs = 0
        for _ in range(2):
            load = Load("saturate", batch_size=2, min_queries=20).to_dict()
            columns = ask(process, op="measure", load=load)["result"]["columns"]
            latencies = decode_array(columns["end_ns"]) - decode_array(columns["start_ns"])
            total_ns, runs = total_ns + int(latencies.sum()), runs + len(latencies)
        found = scraped(port)
    assert {key: labels[key] for key in ("technique", "image", "pod", "node")} == {
        "technique": "time-slicing",
        "image": "i:1",
        "pod": "p-0",
        "node": "n",
    }
    assert found["inference_time_seconds_count"][1] == runs >= 40
    assert found["inference_time_seconds_sum"][1] == total_ns / 1e9
    assert found["inferences_total"][1] == 2 * runs


def test_a_taken_port_is_an_answer_of_prepare_and_not_the_end_of_the_worker() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        worker(GPUTAX_METRICS_PORT=str(taken.getsockname()[1]), GPUTAX_METRICS_ADDRESS="127.0.0.1") as process,
    ):
        error = ask(process, op="prepare", setup=SETUP)["error"]
        assert error["kind"] == "PreflightError"
        assert "in use" in error["what"]
        assert "GPUTAX_METRICS_PORT" in error["next"]
        assert ask(process, op="close") == {"id": 1, "result": {}}


def test_a_variable_that_is_no_port_is_an_answer_too() -> None:
    with worker(GPUTAX_METRICS_PORT="eight") as process:
        assert "is not a port" in ask(process, op="prepare", setup=SETUP)["error"]["what"]


def test_without_the_variable_the_library_is_not_even_imported() -> None:
    code = (
        "import os, sys; os.environ.pop('GPUTAX_METRICS_PORT', None)\n"
        "from gputax.worker.main import _served_metrics\n"
        "assert _served_metrics() is None and 'prometheus_client' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
