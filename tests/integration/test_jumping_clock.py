"""A wall clock that jumps in the middle of a run: LoadGen believes it, gputax notices and says invalid."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Gputax = Callable[..., subprocess.CompletedProcess[str]]

# Stands in for an operator or NTP that sets the clock: CLOCK_REALTIME is 500 ms ahead from the given second on.
SHIM = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>
#include <sys/syscall.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *at) {
    long result = syscall(SYS_clock_gettime, clock, at);
    static long long started;
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    long long now_ns = now.tv_sec * 1000000000LL + now.tv_nsec;
    if (!started) started = now_ns;
    const char *after = getenv("JUMP_AFTER_MS");
    if (clock == CLOCK_REALTIME && after && now_ns - started > atoll(after) * 1000000LL) {
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


def run_with(gputax: Gputax, shim: str, after_ms: str) -> tuple[int, dict[str, object]]:
    suite = Path(shim).with_name("long.toml")
    suite.write_text('scenarios = ["single-stream"]\n[single-stream]\nmin_samples = 4000\n')
    done = gputax(
        "run", "--engine", "synthetic:latency_us=1000", "--suite", str(suite), "--out", f"o{after_ms}", "--json",
        LD_PRELOAD=shim, JUMP_AFTER_MS=after_ms,
    )  # fmt: skip
    (benchmark,) = json.loads(done.stdout)["benchmarks"]
    return done.returncode, benchmark


def test_a_jump_makes_the_cell_invalid_and_our_own_clock_is_not_moved(gputax: Gputax, shim: str) -> None:
    # Start-up and pilot take one and a half to three seconds, the measured load four: 4.5 s lies within it.
    code, benchmark = run_with(gputax, shim, "4500")
    codes = [warning["code"] for warning in benchmark["warnings"]]  # type: ignore[attr-defined]
    assert "clock-jump" in codes
    assert benchmark["valid"] is False
    assert code == 5
    assert benchmark["latency_max_ms"] < 400, "gputax's clock is monotonic"  # type: ignore[operator]


def test_a_steady_clock_is_not_accused(gputax: Gputax, shim: str) -> None:
    _, benchmark = run_with(gputax, shim, "600000")
    assert "clock-jump" not in [warning["code"] for warning in benchmark["warnings"]]  # type: ignore[attr-defined]
