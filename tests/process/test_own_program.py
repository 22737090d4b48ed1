"""A program of the user's, measured by what it prints or by its processes; its faults end nothing but itself."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputax.errors import EngineError, PreflightError
from gputax.plan.own_program import OwnProgram
from gputax.results.store import read_samples
from gputax.worker.engines.engine import EngineRequest, awake
from gputax.worker.engines.program import ProgramEngine
from tests.standins.started import start

Gputax = Callable[..., subprocess.CompletedProcess[str]]
# Prints what it measured of its own sleep, as a benchmark does; a C or Python program buffers its lines in a pipe.
PRINTS = """
import sys, time
print("loading the model")
while True:
    begun = time.perf_counter()
    time.sleep(float(sys.argv[1]))
    print(f"{1e3 * (time.perf_counter() - begun):.4f} ms")
"""
# Allocations on whatever libcuda.so.1 the environment provides.
ALLOCATES = """
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
context, device, pointer = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint64()
assert not cuda.cuInit(0)
assert not cuda.cuDeviceGet(ctypes.byref(device), 0)
assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
assert not cuda.cuCtxSetCurrent(context)
for _ in range(REPEATS):
    begun = time.perf_counter_ns()
    for _ in range(100):
        assert not cuda.cuMemAlloc_v2(ctypes.byref(pointer), 1 << 20)
        assert not cuda.cuMemFree_v2(pointer)
    print(f"{time.perf_counter_ns() - begun}ns")
"""


def python(code: str, *more: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code, *more)


Open = Callable[..., ProgramEngine]


@pytest.fixture
def opened() -> Iterator[Open]:
    engines: list[ProgramEngine] = []

    def open_program(*words: str, **more: Any) -> ProgramEngine:
        request = EngineRequest("x", {}, "auto", "fp32", 1, 1, program=OwnProgram(words, **more))
        engines.append(ProgramEngine(request))
        return engines[-1]

    yield open_program
    for engine in engines:
        engine.close()


def measured(engine: ProgramEngine, runs: int) -> list[float]:
    """The milliseconds of some runs, as a load takes them."""
    found = []
    with awake(engine):
        for _ in range(runs):
            engine.run(0, 1)
            found.append(engine.last_ns / 1e6)
    return found


class TestPrintedLatencies:
    def test_are_those_of_the_program_and_never_those_of_its_stops(self, opened: Open) -> None:
        engine = opened(*python(PRINTS, "0.004"))
        found: list[float] = []
        for _ in range(5):
            found += measured(engine, 4)
            time.sleep(0.3)  # the other side's turn; a repetition that was stopped takes 300 ms
        assert min(found) >= 4.0
        assert np.median(found) < 100.0, "of a busy machine"
        assert max(found) < 290.0

    def test_the_program_stands_still_between_two_loads(self, opened: Open) -> None:
        engine = opened(*python("import time\nwhile True: print(f'{time.process_time_ns() % 1000 + 1}us')"))
        measured(engine, 10)
        time.sleep(0.05)  # until the signal has arrived
        before = engine.used()
        time.sleep(0.3)
        assert engine.used() == before
        measured(engine, 10)
        assert engine.used().cpu_ns > before.cpu_ns

    def test_a_program_that_ends_well_is_started_again(self, opened: Open, tmp_path: Path) -> None:
        starts = tmp_path / "starts"
        code = f"open({str(starts)!r}, 'a').write('x')\nimport time\nfor _ in range(3): time.sleep(0.002); print('2ms')"
        assert measured(opened(*python(code)), 9) == [2.0] * 9
        assert len(starts.read_text()) >= 3

    @pytest.mark.parametrize(
        ("code", "message", "hint"),
        [
            ("print('12.5')", "'12.5', a number without a unit", "--unit"),
            ("print('hello'); print('there')", "without printing a latency; it printed: hello | there", "by-process"),
            ("pass", "ended without printing a latency", "--repeat-by-process"),
            ("import sys; sys.exit('no model')", "ended with exit code 1", "no model"),
            ("import os; os.kill(os.getpid(), 9)", "was killed by signal 9", "nothing to stderr"),
            ("import time; time.sleep(60)", "no latency yet after 1 s", "--stall-timeout"),
        ],
    )
    def test_faults_are_refused_before_anything_is_measured(
        self, opened: Open, code: str, message: str, hint: str
    ) -> None:
        with pytest.raises(EngineError, match=re.escape(message)) as raised:
            opened(*python(code), timeout_s=1.0 if "sleep" in code else 0.0)
        assert hint in raised.value.what + raised.value.next_step

    @pytest.mark.parametrize(
        ("code", "message"),
        [
            ("print('done, \\x1b[1m42')", "which is not a latency"),
            ("import sys; print('bad', file=sys.stderr); sys.exit(3)", "ended with exit code 3"),
            ("import time; time.sleep(60)", "hangs: nothing more after 1 s"),
        ],
    )
    def test_faults_after_some_latencies(self, opened: Open, code: str, message: str) -> None:
        good = "import time\nfor _ in range(5): time.sleep(0.01); print('10ms')\n"
        engine = opened(*python(good + code), timeout_s=1.0 if "sleep(60)" in code else 0.0)
        with pytest.raises(EngineError, match=message):
            measured(engine, 50)

    def test_a_wrong_unit_does_not_wait_forever(self, opened: Open) -> None:
        with pytest.raises(EngineError, match="longer than the program has been awake") as raised:
            opened(*python("while True: print(12.5)"), unit="s")
        assert "check the unit" in raised.value.next_step

    def test_a_program_that_does_not_exist(self, opened: Open) -> None:
        with pytest.raises(PreflightError, match="no-such-program cannot be started: No such file"):
            opened("no-such-program")

    def test_its_children_end_with_it(self, opened: Open, tmp_path: Path) -> None:
        note = tmp_path / "pid"
        script = f"sleep 1000 & echo $! > {note}; while :; do sleep 0.01; echo 10ms; done"
        opened("/bin/sh", "-c", script).close()
        pid = int(note.read_text())
        until(lambda: not running(pid))


def until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def running(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class TestRepetitions:
    def test_are_timed_from_start_to_exit(self, opened: Open) -> None:
        engine = opened("sleep", "0.02", by_process=True)
        found = measured(engine, 5)
        assert min(found) >= 20.0
        assert engine.used().cpu_ns > 0
        assert engine.facts()["provider"] == "processes from start to exit"

    def test_faults(self, opened: Open) -> None:
        with pytest.raises(EngineError, match="ended with exit code 3") as raised:
            opened("/bin/sh", "-c", "echo out of disk >&2; exit 3", by_process=True)
        assert "out of disk" in raised.value.what
        with pytest.raises(EngineError, match=r"did not end within 0\.5 s"):
            opened("sleep", "60", by_process=True, timeout_s=0.5)
        with pytest.raises(PreflightError, match="cannot be started"):
            opened("no-such-program", by_process=True)


def test_run_says_what_was_measured(gputax: Gputax, tiny_suite: str, tmp_path: Path) -> None:
    (tmp_path / "bench.py").write_text(PRINTS)
    done = gputax("run", "--suite", tiny_suite, "--out", "o", "--", sys.executable, "bench.py", "0.002")
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "o/benchmark_results.json").read_text())
    (benchmark,) = record["benchmarks"]
    assert re.fullmatch(r"python\S*_bench.py_0.002@[0-9a-f]{12}", benchmark["workload"])
    assert benchmark["latency_min_ms"] >= 2.0
    assert benchmark["queries"] >= 64
    assert "a program of yours" in benchmark["claim"]
    assert "which gputax does not see" in record["device_label"]
    facts = record["fingerprint"]["setups"][benchmark["workload"]]
    assert facts["command"].endswith("bench.py 0.002")
    assert f"-- {sys.executable} bench.py 0.002" in gputax("report", "o", "--format", "markdown").stdout
    first = facts["program_sha256"]
    (tmp_path / "bench.py").write_text(PRINTS + "#")
    gputax("run", "--suite", tiny_suite, "--out", "p", "--", sys.executable, "bench.py", "0.002")
    other = json.loads((tmp_path / "p/benchmark_results.json").read_text())
    assert other["fingerprint"]["setups"][benchmark["workload"]]["program_sha256"] != first


def test_a_duet_judges_a_program_by_pairs_with_its_counters_beside(gputax: Gputax, tmp_path: Path) -> None:
    (tmp_path / "bench.py").write_text(PRINTS)
    words = ("--max-time", "8", "--no-control", "--json", "--out", "d")
    done = gputax("duet", "bare", "bare", *words, "--", sys.executable, "bench.py", "0.002")
    assert done.returncode in (0, 6, 7), done.stderr
    found = json.loads(done.stdout)
    mean = next(row for row in found["metrics"] if row["metric"] == "latency_mean")
    assert mean["base_value"] >= 2.0
    assert mean["paired"]
    assert mean["pairs"] >= 5
    columns = read_samples(tmp_path / "d/pairs.parquet")
    assert all(columns["a_cpu_ns"] > 0)
    assert all(columns["b_voluntary_switches"] > 0), "each repetition sleeps"
    assert {"a_involuntary_switches", "b_involuntary_switches"} <= columns.keys()


def test_what_the_environment_costs_is_found(gputax: Gputax, tmp_path: Path) -> None:
    """The program allocates on the software device, directly and behind the proxy: each call crosses a process."""
    (tmp_path / "cuda.py").write_text(ALLOCATES.replace("REPEATS", "1 << 30"))
    words = ("--device", "software", "--max-time", "8", "--no-control", "--json", "--out", "d")
    done = gputax("duet", "bare", "bare+proxy", *words, "--", sys.executable, "cuda.py")
    assert done.returncode in (6, 7), done.stderr
    found = json.loads(done.stdout)
    base, other = found["sides"]
    assert base["evidence"]["active"] is True
    assert other["evidence"]["active"] is True
    assert other["evidence"]["calls_by_proxy"] > 200
    mean = next(row for row in found["metrics"] if row["metric"] == "latency_mean")
    assert mean["overhead_percent"] > 10.0


def test_a_program_that_never_calls_the_driver_proves_no_proxy(gputax: Gputax) -> None:
    words = ("--device", "software", "--max-time", "5", "--no-control", "--repeat-by-process", "--out", "d")
    done = gputax("duet", "bare", "bare+proxy", *words, "--", "true")
    assert done.returncode == 5, done.stderr
    assert "it did not call the driver" in done.stderr


def test_repeated_processes_behind_the_proxy_are_proven(gputax: Gputax, tmp_path: Path) -> None:
    (tmp_path / "cuda.py").write_text(ALLOCATES.replace("REPEATS", "2"))
    words = ("--device", "software", "--max-time", "8", "--no-control", "--repeat-by-process", "--json", "--out", "d")
    done = gputax("duet", "bare", "bare+proxy", *words, "--", sys.executable, "cuda.py")
    assert done.returncode in (0, 6, 7), done.stderr
    assert json.loads(done.stdout)["sides"][1]["evidence"]["calls_by_proxy"] > 200


def test_a_fault_is_a_failed_cell_with_the_programs_last_words(gputax: Gputax, tiny_suite: str) -> None:
    done = gputax("run", "--suite", tiny_suite, "--out", "o", "--", "/bin/sh", "-c", "echo no licence >&2; exit 9")
    assert done.returncode == 4, done.stderr
    assert "ended with exit code 9" in done.stderr
    assert "no licence" in done.stderr


@pytest.mark.parametrize("how", ["printed", "by process"])
def test_a_killed_coordinator_leaves_no_program(tmp_path: Path, tiny_suite: str, how: str) -> None:
    note = tmp_path / "pid"
    by_process = how == "by process"
    loop = "exec sleep 1000" if by_process else "while :; do sleep 0.01; echo 10ms; done"
    words = ["run", "--suite", tiny_suite, "--out", "o", *(["--repeat-by-process"] if by_process else [])]
    process = start(tmp_path, *words, "--", "/bin/sh", "-c", f"echo $$ > {note}; {loop}")
    until(lambda: note.exists() and bool(note.read_text().strip()))
    pid = int(note.read_text())
    assert running(pid)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    until(lambda: not running(pid))
