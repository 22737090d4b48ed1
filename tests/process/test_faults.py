"""Kill it, fill the disk, cut the pipe, feed it garbage: a clear message, nothing lost, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gputax.results.documents.run import RunRecord
from gputax.results.reading import RUN
from gputax.results.store import read_document
from tests.standins.small_disk import fill, small_disk
from tests.standins.started import STARTED, start, wait_for, workers_of

Gputax = Callable[..., subprocess.CompletedProcess[str]]
SLOW = "synthetic:latency_us=2000"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # waited for by its parent, perhaps between opening and reading
        return False


def wait_until_dead(pid: int) -> None:
    deadline = time.monotonic() + 10
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pid)


@pytest.fixture
def long_suite(tiny_suite: str) -> str:
    """The tiny suite with offline cells of two seconds: a fault meets the cell that it is meant for, however late."""
    path = Path(tiny_suite)
    text = path.read_text()
    longer = text.replace("batch = [1, 4]\nduration_s = 0.3\n", "batch = [1, 4]\nduration_s = 2\n")
    assert longer != text
    path.write_text(longer)
    return tiny_suite


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_is_done_and_the_same_command_resumes(
    tmp_path: Path, long_suite: str, gputax: Gputax, signum: int
) -> None:
    words = ("run", "--engine", SLOW, "--suite", long_suite, "--out", "o")
    process = start(tmp_path, *words)
    wait_for(process, "[2/4]")
    wait_for(process, "measuring")  # until it loads, the worker of the first cell may still be there, or none
    (worker,) = workers_of(process.pid)
    process.send_signal(signum)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "1 of 4 cells are kept" in errors
    assert "the same command resumes" in errors
    assert not alive(worker)
    first = read_document(RUN, tmp_path / "o")
    assert [benchmark.cell for benchmark in first.benchmarks] == ["resnet50-offline-b1-bare"]
    assert not first.complete

    done = gputax(*words)
    assert done.returncode == 0, done.stderr
    assert "1 of them measured before" in done.stderr
    record = read_document(RUN, tmp_path / "o")
    assert record.complete
    assert record.benchmarks[0] == first.benchmarks[0], "what was measured is not measured again"
    assert [benchmark.session for benchmark in record.benchmarks] == [1, 2, 2, 2]
    assert "Measured in the session of" in done.stdout
    assert len(record.benchmarks) == 4
    events = [json.loads(line)["event"] for line in (tmp_path / "o/events.jsonl").read_text().splitlines()]
    assert events.count("run started") == 2
    assert "interrupted" in events


def test_a_resume_on_another_machine_is_refused(tmp_path: Path, tiny_suite: str) -> None:
    words = ("run", "--engine", SLOW, "--suite", tiny_suite, "--out", "o")
    process = start(tmp_path, *words)
    wait_for(process, "[2/4]")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    before = (tmp_path / "o/benchmark_results.json").read_bytes()
    code = "import os, runpy; os.sched_setaffinity(0, {0}); runpy.run_module('gputax', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 3, done.stdout
    assert "differs from that of the earlier cells" in done.stderr
    assert "cpu_allowance.affinity" in done.stderr
    kept = read_document(RUN, tmp_path / "o").benchmarks
    assert kept == RunRecord.model_validate_json(before).benchmarks, "nothing is lost by the refusal"


def test_without_out_the_unfinished_directory_is_found_again(tmp_path: Path, tiny_suite: str, gputax: Gputax) -> None:
    words = ("run", "--engine", SLOW, "--suite", tiny_suite)
    process = start(tmp_path, *words)
    wait_for(process, "[2/4]")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert gputax(*words).returncode == 0
    assert len(list((tmp_path / "results").iterdir())) == 1


def test_a_coordinator_that_is_killed_takes_its_worker_along(tmp_path: Path, tiny_suite: str) -> None:
    process = start(tmp_path, "run", "--engine", SLOW, "--suite", tiny_suite, "--out", "o")
    wait_for(process, "[2/4]")
    wait_for(process, "measuring")  # until it loads, the worker of the first cell may still be there, or none
    (worker,) = workers_of(process.pid)
    process.kill()
    process.communicate()
    wait_until_dead(worker)
    assert read_document(RUN, tmp_path / "o").benchmarks, "the finished cell survives even SIGKILL"


def test_a_killed_worker_fails_its_cell_and_the_next_cell_gets_a_new_one(tmp_path: Path, long_suite: str) -> None:
    process = start(tmp_path, "run", "--engine", SLOW, "--suite", long_suite, "--out", "o")
    wait_for(process, "[2/4]")
    wait_for(process, "measuring")  # until it loads, the worker of the first cell may still be there, or none
    (worker,) = workers_of(process.pid)
    os.kill(worker, signal.SIGKILL)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 4, errors
    record = read_document(RUN, tmp_path / "o")
    assert [failure.cell for failure in record.failures] == ["resnet50-offline-b4-bare"]
    assert "killed by signal 9" in record.failures[0].what
    assert len(record.benchmarks) == 3
    assert "resnet50-offline-b4-bare failed" in " ".join(out.split())


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for temporary files, so that whatever is left in it was ours."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    return place


def wait_for_loadgen(temporary: Path) -> None:
    deadline = time.monotonic() + 20
    while not list(temporary.glob("*/gputax-loadgen-*")):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_killed_worker_leaves_no_temporary_files(tmp_path: Path, tiny_suite: str, temporary: Path) -> None:
    process = start(tmp_path, "run", "--engine", SLOW, "--suite", tiny_suite, "--out", "o")
    wait_for_loadgen(temporary)
    (worker,) = workers_of(process.pid)
    os.kill(worker, signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 4, errors
    assert list(temporary.iterdir()) == []


def test_an_engine_that_throws_leaves_no_temporary_files(gputax: Gputax, tiny_suite: str, temporary: Path) -> None:
    # The pilot of 0.2 s has at most 100 runs, on a busy machine a few; with LoadGen's 100 there are more than 101.
    engine = "synthetic:latency_us=2000,fail_after=101"
    done = gputax("run", "--engine", engine, "--suite", tiny_suite, "--scenario", "single-stream", "--out", "o")
    assert done.returncode == 4, done.stderr
    assert list(temporary.iterdir()) == []


def test_a_killed_coordinator_leaves_no_temporary_files(tmp_path: Path, tiny_suite: str, temporary: Path) -> None:
    process = start(tmp_path, "run", "--engine", SLOW, "--suite", tiny_suite, "--out", "o")
    wait_for_loadgen(temporary)
    (worker,) = workers_of(process.pid)
    process.kill()
    process.communicate()
    wait_until_dead(worker)
    assert list(temporary.iterdir()) == []


def test_an_idle_worker_whose_coordinator_is_killed_leaves_no_temporary_files(tmp_path: Path, temporary: Path) -> None:
    code = (
        "import time; from gputax.places import environment_named; "
        "from gputax.environments.connection import WorkerConnection; "
        "c = WorkerConnection(environment_named('bare')); c.describe(); print(c.pid, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    STARTED.append(process)
    assert process.stdout
    worker = int(process.stdout.readline())
    assert len(list(temporary.iterdir())) == 1
    process.kill()
    process.wait()
    deadline = time.monotonic() + 10
    while alive(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(temporary.iterdir()) == []


def test_an_engine_that_throws_fails_with_its_cause(gputax: Gputax, tiny_suite: str) -> None:
    engine = "synthetic:latency_us=2000,fail_after=101"
    done = gputax(
        "run", "--engine", engine, "--suite", tiny_suite, "--scenario", "single-stream", "--out", "o", "--json"
    )
    assert done.returncode == 4, done.stderr
    record = json.loads(done.stdout)
    assert record["benchmarks"] == []
    assert record["failures"][0]["what"] == "synthetic failure after 101 runs, as programmed"


def test_an_engine_that_hangs_is_ended_by_the_watchdog(gputax: Gputax, tiny_suite: str) -> None:
    words = (
        "run",
        "--suite",
        tiny_suite,
        "--scenario",
        "single-stream",
        "--out",
        "o",
        "--json",
        "--stall-timeout",
        "2",
    )
    started = time.monotonic()
    done = gputax(*words, "--engine", "synthetic:latency_us=2000,hang_after=130")
    assert done.returncode == 4, done.stderr
    assert "no progress in 'measure' for 2 s" in json.loads(done.stdout)["failures"][0]["what"]
    assert time.monotonic() - started < 30


def test_cuda_where_there_is_none_fails_before_any_load_and_leaves_nothing(gputax: Gputax, tmp_path: Path) -> None:
    done = gputax("run", "--device", "cuda", "--out", "o")
    assert done.returncode == 3
    assert "cuda was requested" in done.stderr
    assert "gputax[cuda]" in done.stderr
    assert not (tmp_path / "o").exists()


def test_two_runs_into_one_directory(tmp_path: Path, tiny_suite: str, gputax: Gputax) -> None:
    words = ("run", "--engine", SLOW, "--suite", tiny_suite, "--out", "o")
    first = start(tmp_path, *words)
    wait_for(first, "[1/4]")
    first.send_signal(signal.SIGSTOP)  # so that it cannot be done before the second has started
    second = gputax(*words)
    first.send_signal(signal.SIGCONT)
    assert second.returncode == 3
    assert f"another gputax (pid {first.pid})" in second.stderr
    first.communicate(timeout=60)
    assert first.returncode == 0


def test_an_unwritable_output_is_refused_in_the_first_second(gputax: Gputax) -> None:
    done = gputax("run", "--out", "/proc/nowhere")
    assert done.returncode == 3
    assert "cannot write" in done.stderr
    assert "warm-up" not in done.stderr


def test_a_disk_that_fills_up_in_the_middle_loses_nothing(tmp_path: Path, long_suite: str, gputax: Gputax) -> None:
    with small_disk(tmp_path) as small:
        words = ("run", "--engine", SLOW, "--suite", long_suite, "--out", str(small / "o"))
        process = start(tmp_path, *words)
        wait_for(process, "[2/4]")
        fill(small / "ballast")
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 1, errors
        assert "the disk is full" in errors
        assert len(read_document(RUN, small / "o").benchmarks) == 1
        (small / "ballast").unlink()
        assert gputax(*words).returncode == 0
        assert len(read_document(RUN, small / "o").benchmarks) == 4


def test_one_core_is_enough_and_is_seen(tmp_path: Path, tiny_suite: str) -> None:
    code = "import os, runpy, sys; os.sched_setaffinity(0, {0}); runpy.run_module('gputax', run_name='__main__')"
    words = ["run", "--engine", SLOW, "--suite", tiny_suite, "--out", "o"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert read_document(RUN, tmp_path / "o").fingerprint["cpu_allowance"]["threads"] == 1


def test_a_broken_pipe_is_no_crash(tmp_path: Path) -> None:
    command = f"{sys.executable} -m gputax run --suite mlperf --dry-run --json | head -1"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert done.stdout == "[\n"
    assert "Traceback" not in done.stderr
