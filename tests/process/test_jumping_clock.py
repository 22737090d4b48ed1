"""A wall clock that jumps in the middle of a run: LoadGen believes it, gputax notices and says invalid."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

Gputax = Callable[..., subprocess.CompletedProcess[str]]

# Stands in for an operator or NTP that sets the clock: CLOCK_REALTIME is 500 ms ahead once the named file is there.
SHIM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <sys/syscall.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *at) {
    long result = syscall(SYS_clock_gettime, clock, at);
    const char *sign = getenv("JUMP_WHEN_EXISTS");
    int kept = errno; /* a caller may look at it after it asked for the time */
    int jumped = clock == CLOCK_REALTIME && sign && syscall(SYS_faccessat, AT_FDCWD, sign, F_OK) == 0;
    errno = kept;
    if (jumped) {
        at->tv_nsec += 500000000L;
        if (at->tv_nsec >= 1000000000L) { at->tv_nsec -= 1000000000L; at->tv_sec += 1; }
    }
    return (int)result;
}
"""


@pytest.fixture
def shim(tmp_path: Path) -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    source, library = tmp_path / "jump.c", tmp_path / "jump.so"
    source.write_text(SHIM)
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    return str(library)


def run_with(gputax: Gputax, shim: str, sign: Path) -> tuple[int, dict[str, Any]]:
    suite = Path(shim).with_name("long.toml")
    suite.write_text('scenarios = ["single-stream"]\n[single-stream]\nmin_samples = 4000\n')
    done = gputax(
        "run", "--engine", "synthetic:latency_us=1000", "--suite", str(suite), "--out", f"o-{sign.name}", "--json",
        LD_PRELOAD=shim, JUMP_WHEN_EXISTS=str(sign), TMPDIR=str(sign.parent),
    )  # fmt: skip
    (benchmark,) = json.loads(done.stdout)["benchmarks"]
    return done.returncode, benchmark


def load_runs(temporary: Path) -> bool:
    """Whether LoadGen has begun: the first thing that it does then is to write down its settings."""
    logs = temporary.glob("gputax-worker-*/gputax-loadgen-*/mlperf_log_detail.txt")
    return any(log.stat().st_size for log in logs)


def make_in_the_middle(sign: Path) -> None:
    deadline = time.monotonic() + 60
    while not load_runs(sign.parent):
        assert time.monotonic() < deadline, "no load began"
        time.sleep(0.01)
    time.sleep(0.5)  # the load takes four seconds
    sign.touch()


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    place = tmp_path / "tmp"
    place.mkdir()
    return place


def test_a_jump_makes_the_cell_invalid_and_our_own_clock_is_not_moved(
    gputax: Gputax, shim: str, temporary: Path
) -> None:
    sign = temporary / "jump"
    with ThreadPoolExecutor(1) as beside:
        made = beside.submit(make_in_the_middle, sign)
        code, benchmark = run_with(gputax, shim, sign)
        made.result()
    codes = [warning["code"] for warning in benchmark["warnings"]]
    assert "clock-jump" in codes
    assert benchmark["valid"] is False
    assert code == 5
    assert benchmark["latency_max_ms"] < 400, "gputax's clock is monotonic"


def test_a_steady_clock_is_not_accused(gputax: Gputax, shim: str, temporary: Path) -> None:
    _, benchmark = run_with(gputax, shim, temporary / "never")
    assert "clock-jump" not in [warning["code"] for warning in benchmark["warnings"]]
