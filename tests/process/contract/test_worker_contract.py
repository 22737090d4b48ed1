"""The worker's side of the protocol, played against the real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gputax.plan.cells import Load, Setup
from gputax.worker.protocol import PROTOCOL_VERSION, decode_array

SYNTHETIC = Setup("resnet50", engine="synthetic:latency_us=500", sample_count=8, max_batch=4)


class Coordinator:
    """Speaks raw lines, so that nothing of our own client hides a fault of the worker."""

    def __init__(self, temporary: Path) -> None:
        # Nobody removes here what a killed worker leaves, so it goes with the test.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gputax.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(temporary)},
        )
        assert self.process.stdin
        assert self.process.stdout
        self.stdin, self.stdout = self.process.stdin, self.process.stdout

    def send(self, **message: Any) -> None:
        self.raw(json.dumps(message).encode())

    def raw(self, line: bytes) -> None:
        self.stdin.write(line + b"\n")
        self.stdin.flush()

    def receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.stdout.readline())
        return message

    def answer(self) -> dict[str, Any]:
        while "event" in (message := self.receive()):
            pass
        return message


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Coordinator]:
    coordinator = Coordinator(tmp_path)
    yield coordinator
    if coordinator.process.poll() is None:
        coordinator.process.kill()
    coordinator.process.wait()
    for pipe in (coordinator.process.stdin, coordinator.process.stdout, coordinator.process.stderr):
        if pipe:
            pipe.close()


def test_describes_its_place(worker: Coordinator) -> None:
    worker.send(id=1, op="describe")
    result = worker.answer()["result"]
    assert result["protocol"] == PROTOCOL_VERSION
    assert result["pid"] == worker.process.pid
    assert result["host"]["cpu_model"]


def test_tells_the_doctor_more_when_asked(worker: Coordinator) -> None:
    worker.send(id=1, op="describe", with_engines=True, listen_s=0.1)
    result = worker.answer()["result"]
    assert "CPUExecutionProvider" in result["onnxruntime"]["providers"]
    assert "noise" in result


def test_prepares_measures_and_closes(worker: Coordinator) -> None:
    worker.send(id=1, op="prepare", setup=SYNTHETIC.to_dict())
    assert worker.answer()["result"]["device"] == "cpu"
    load = Load("saturate", batch_size=2, min_duration_s=0.05, min_queries=10)
    worker.send(id=2, op="measure", load=load.to_dict())
    result = worker.answer()["result"]
    columns = {name: decode_array(packed) for name, packed in result["columns"].items()}
    assert len(columns["start_ns"]) >= 10
    assert (columns["end_ns"] - columns["start_ns"]).min() >= 500_000
    assert set(columns["samples"]) == {2}
    worker.send(id=3, op="close")
    assert worker.answer() == {"id": 3, "result": {}}
    assert worker.process.wait(timeout=10) == 0


def test_a_slot_is_the_runs_that_were_asked_for_and_nothing_else(worker: Coordinator) -> None:
    worker.send(id=1, op="prepare", setup=SYNTHETIC.to_dict())
    worker.answer()
    for request_id, runs in ((2, 1), (3, 7)):
        worker.send(id=request_id, op="measure", slot={"batch": 2, "runs": runs, "first_run": 5})
        columns = worker.receive()["result"]["columns"]
        durations = decode_array(columns["end_ns"]) - decode_array(columns["start_ns"])
        assert len(durations) == runs
        assert durations.min() >= 500_000


def test_a_slot_reports_the_workers_own_time_in_the_counted_runs(worker: Coordinator) -> None:
    worker.send(id=1, op="prepare", setup=Setup("resnet50", engine="synthetic:latency_us=300").to_dict())
    worker.answer()
    both = []
    for request_id, dropped in ((2, 0), (3, 39)):
        worker.send(id=request_id, op="measure", slot={"batch": 1, "runs": 40, "first_run": 0, "dropped": dropped})
        both.append(worker.receive()["result"])
    whole, counted = both
    assert len(decode_array(counted["columns"]["end_ns"])) == 40, "the dropped runs are reported, too"
    assert whole["cpu_ns"] > 5 * counted["cpu_ns"] > 0, "40 runs against 1"
    if Path("/proc/self/schedstat").exists():
        assert whole["run_wait_ns"] >= 0
        assert counted["run_wait_ns"] >= 0


def test_an_engine_that_throws_in_a_slot_is_answered(worker: Coordinator) -> None:
    failing = Setup("resnet50", engine="synthetic:latency_us=10,fail_after=3")
    worker.send(id=1, op="prepare", setup=failing.to_dict())
    worker.answer()
    worker.send(id=2, op="measure", slot={"batch": 1, "runs": 9, "first_run": 0})
    assert "synthetic failure" in worker.answer()["error"]["what"]


@pytest.mark.parametrize("scenario", ["offline", "server", "single-stream", "multi-stream"])
def test_every_loadgen_scenario_leaves_samples_and_loadgens_own_logs(worker: Coordinator, scenario: str) -> None:
    worker.send(id=1, op="prepare", setup=Setup("resnet50", engine="synthetic", max_batch=8).to_dict())
    worker.answer()
    load = Load(scenario, batch_size=8 if scenario != "single-stream" else 1, min_queries=40, target_qps=400.0)
    worker.send(id=2, op="measure", load=load.to_dict())
    result = worker.answer()["result"]
    ends = decode_array(result["columns"]["end_ns"])
    assert len(ends) >= (5 if scenario == "offline" else 40)
    assert "result_validity" in result["logs"]["mlperf_log_detail.txt"]
    assert "Result is" in result["logs"]["mlperf_log_summary.txt"]


def test_progress_events_come_while_a_load_runs(worker: Coordinator) -> None:
    worker.send(id=1, op="prepare", setup=SYNTHETIC.to_dict())
    worker.answer()
    worker.send(id=2, op="measure", load=Load("saturate", min_duration_s=2.5).to_dict())
    events = []
    while "event" in (message := worker.receive()):
        events.append(message["event"]["done"])
    assert len(events) >= 2
    assert events == sorted(events)
    assert events[-1] > events[0] > 0


def test_answers_nonsense_with_an_error_and_goes_on(worker: Coordinator) -> None:
    for line in (
        b"not json",
        b"[1, 2]",
        b'{"id": 4, "op": "fly"}',
        b'{"id": 5, "op": "prepare", "setup": {"x": 1}}',
    ):
        worker.raw(line)
        assert "error" in worker.answer()
    worker.send(id=6, op="describe")
    assert worker.answer()["id"] == 6


def test_measure_before_prepare_is_an_error(worker: Coordinator) -> None:
    worker.send(id=1, op="measure", load=Load("saturate").to_dict())
    assert worker.answer()["error"]["what"] == "measure before prepare"


@pytest.mark.parametrize("scenario", ["offline", "server", "single-stream", "multi-stream", "saturate"])
def test_an_engine_that_throws_is_answered_with_its_cause_and_ends_the_worker_cleanly(
    worker: Coordinator, scenario: str
) -> None:
    failing = Setup("resnet50", engine="synthetic:latency_us=100,fail_after=5")
    worker.send(id=1, op="prepare", setup=failing.to_dict())
    worker.answer()
    load = Load(scenario, min_queries=1000, min_duration_s=600, target_qps=100.0)
    started = time.monotonic()
    worker.send(id=2, op="measure", load=load.to_dict())
    error = worker.answer()["error"]
    assert error["kind"] == "EngineError"
    assert "synthetic failure after 5 runs" in error["what"]
    assert worker.process.wait(timeout=10) == 0, "LoadGen's abort code 134 must not appear"
    assert time.monotonic() - started < 60, "and nobody waits for the 600 s of the load"


def test_ends_when_the_coordinator_is_gone_in_the_middle_of_a_load(worker: Coordinator) -> None:
    worker.send(id=1, op="prepare", setup=SYNTHETIC.to_dict())
    worker.answer()
    worker.send(id=2, op="measure", load=Load("single-stream", min_duration_s=60, min_queries=10**5).to_dict())
    assert "event" in worker.receive()
    worker.stdin.close()
    assert worker.process.wait(timeout=10) == 0


def test_ends_when_the_coordinator_is_gone_while_idle(worker: Coordinator) -> None:
    worker.send(id=1, op="describe")
    worker.answer()
    worker.stdin.close()
    assert worker.process.wait(timeout=10) == 0


def test_an_interrupt_of_the_terminal_does_not_reach_the_worker(worker: Coordinator) -> None:
    worker.send(id=1, op="describe")
    worker.answer()
    os.kill(worker.process.pid, signal.SIGINT)
    time.sleep(0.2)
    worker.send(id=2, op="describe")
    assert worker.answer()["id"] == 2


def test_what_libraries_print_never_reaches_the_protocol() -> None:
    code = (
        "import os, sys, threading\n"
        "from gputax.worker import main as worker_main\n"
        "pipes = worker_main.Pipes()\n"
        "print('a library prints'); os.write(1, b'and another, by descriptor\\n')\n"
        "worker_main.Worker(pipes).serve()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=b'{"id": 1, "op": "close"}\n',
        capture_output=True,
        timeout=30,
        check=True,
    )
    assert done.stdout == b'{"id":1,"result":{}}\n'
    assert b"and another, by descriptor" in done.stderr
