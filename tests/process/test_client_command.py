"""`gputax client` as a user, a kubelet and Prometheus meet it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

Gputax = Callable[..., subprocess.CompletedProcess[str]]
LOCAL = ("--address", "127.0.0.1", "--port", "0")


class RunningClient:
    """A client in the background, whose stderr is read line by line."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gputax", "client", *LOCAL, *words],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said = ""
        self.url = self.wait_for(r"metrics at (\S+)/metrics")

    def wait_for(self, pattern: str) -> str:
        """Read stderr until the pattern comes, and return its group."""
        assert self.process.stderr
        while (found := re.search(pattern, self.said)) is None:
            line = self.process.stderr.readline()
            assert line, f"it ended: {self.said}"
            self.said += line
        return found[found.lastindex or 0]

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return str(answer.read().decode())

    def scraped(self) -> dict[str, float]:
        families = text_string_to_metric_families(self.get("/metrics"))
        return {each.name: each.value for family in families for each in family.samples if "le" not in each.labels}

    def until(self, count: int) -> dict[str, float]:
        """Scrape until so many inferences are counted."""
        deadline = time.monotonic() + 30
        while (found := self.scraped())["inferences_total"] < count:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return found

    def ended(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, self.said + err


@contextmanager
def running(folder: Path, *words: str) -> Iterator[RunningClient]:
    client = RunningClient(folder, *words)
    try:
        yield client
    finally:
        if client.process.poll() is None:
            client.process.kill()
            client.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_mid_run_ends_it_in_order(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path, "--engine", "synthetic:latency_us=20000", "--warmup", "0", "--json") as client:
        client.until(10)
        assert client.get("/readyz") == "ok\n"
        before = client.scraped()
        client.process.send_signal(number)
        code, out, err = client.ended()
    summary = json.loads(out)
    assert code == 0, err
    assert summary["ended_by"] == number.name
    assert summary["runs"] >= before["inference_time_seconds_count"] >= 10
    assert summary["errors"] == 0
    assert before["inference_time_seconds_sum"] / before["inference_time_seconds_count"] >= 0.02
    assert "stopping after the running inference" in err
    assert "Traceback" not in err


def test_a_second_signal_ends_it_at_once_even_where_the_engine_hangs(tmp_path: Path) -> None:
    with running(tmp_path, "--engine", "synthetic:latency_us=100,hang_after=5", "--warmup", "0") as client:
        client.until(2)
        client.process.send_signal(signal.SIGTERM)
        client.wait_for("stopping after the running inference")
        assert client.get("/healthz") == "ok\n", "it waits for the inference"
        client.process.send_signal(signal.SIGTERM)
        code, out, err = client.ended()
    assert code == 130
    assert out == ""
    assert "ended at once" in err


def test_a_duration_ends_it_with_a_summary(gputax: Gputax) -> None:
    done = gputax("client", *LOCAL, "--engine", "synthetic:latency_us=5000", "--duration", "0.3", "--warmup", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert re.match(r"yolos-small on CPU \(programmed delay, no computation\), not a GPU: \d+ inf", done.stdout)


def test_poisson_arrivals_with_a_goodput_target(gputax: Gputax) -> None:
    words = ("--engine", "synthetic:latency_us=1000", "--rate", "100/s", "--goodput", "500ms", "--duration", "1")
    done = gputax("client", *LOCAL, *words, "--warmup", "0", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert 50 < summary["inferences"] + summary["unserved"] < 150
    assert summary["target_ms"] == 500.0
    assert 0 < summary["within_target"] <= summary["inferences"]


def test_an_engine_that_goes_on_failing_ends_it_with_its_cause_and_what_was_counted(gputax: Gputax) -> None:
    done = gputax("client", *LOCAL, "--engine", "synthetic:latency_us=100,fail_after=20", "--warmup", "0", "--json")
    assert done.returncode == 4
    assert done.stderr.count("Traceback") == 1
    assert "10 inferences in a row failed" in done.stderr
    summary = json.loads(done.stdout)
    assert (summary["runs"], summary["errors"], summary["ended_by"]) == (17, 10, "error")


def test_a_taken_port_is_told_before_anything_is_loaded(gputax: Gputax) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = gputax("client", "--address", "127.0.0.1", "--port", port)
    assert done.returncode == 3
    assert f"the port for metrics is in use: {port}" in done.stderr
    assert "next:" in done.stderr
    assert "loading" not in done.stderr


def test_a_real_model_is_served(tmp_path: Path) -> None:
    with running(tmp_path, "--workload", "resnet50", "--threads", "1", "--warmup", "0", "--device", "cpu") as client:
        found = client.until(2)
        info = next(line for line in client.get("/metrics").splitlines() if line.startswith("gputax_tenant_info{"))
        client.process.send_signal(signal.SIGTERM)
        code, out, err = client.ended()
    assert code == 0, err
    assert found["inference_time_seconds_sum"] > 0
    for label in ('workload="resnet50"', 'engine="onnx"', 'device="cpu"', 'threads="1"', "not a GPU"):
        assert label in info
    assert out.startswith("resnet50 on CPU (")


def test_micro_finds_the_software_device_by_itself_and_hears_signals(tmp_path: Path) -> None:
    words = ("--workload", "micro:operation", "--device", "software", "--warmup", "0")
    with running(tmp_path, *words) as client:
        client.until(10)
        client.process.send_signal(signal.SIGTERM)
        code, out, err = client.ended()
    assert code == 0, err
    assert out.startswith("micro:operation on software device (gputax software device), not a GPU: ")


def test_help_needs_neither_the_engine_nor_the_metrics_library() -> None:
    code = (
        "import sys; from gputax.cli.verbs import app\n"
        "app.main(args=['client', '--help'], prog_name='gputax', standalone_mode=False)\n"
        "heavy = {'onnxruntime', 'prometheus_client', 'numpy', 'scipy', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "--goodput" in done.stdout


def test_on_a_terminal_one_line_is_rewritten(tmp_path: Path) -> None:
    leader, follower = os.openpty()
    words = ("--engine", "synthetic:latency_us=5000", "--duration", "1.5", "--warmup", "0")
    process = subprocess.Popen(
        [sys.executable, "-m", "gputax", "client", *LOCAL, *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=follower,
        text=True,
    )
    os.close(follower)
    try:
        out, _ = process.communicate(timeout=60)
        shown = os.read(leader, 1 << 16).decode()
    finally:
        process.kill()
        os.close(leader)
    assert process.returncode == 0
    assert re.search(r"inferences, .* runs/s, mean [\d.]+ ms in the last \d+ s\x1b\[K\r", shown)
    assert "\x1b" not in out
