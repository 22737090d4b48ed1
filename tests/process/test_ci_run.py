"""The order of `.ci/run`, with a stand-in for make: what runs beside the tests must not be lost, and never disturb."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / ".ci/run"
MAKE = """#!/bin/sh
echo "$1 begins" >> calls
echo "output of $1"
case " $SLOW " in *" $1 "*) sleep 1;; esac
case " $HANGS " in *" $1 "*) echo $$ > hanging; sleep 60;; esac
case " $FAILS " in *" $1 "*) echo "why $1 failed"; exit 2;; esac
echo "$1 ends" >> calls
"""
# Runs pytest, among others: `ALONE_FAILS` fails what is repeated.
PYTHON = """#!/bin/sh
case "$*" in *--last-failed*) echo "alone $*" >> calls; [ -z "$ALONE_FAILS" ];; esac
"""
PROGRAMS = {"make": MAKE, "chromium": "#!/bin/sh\n", "id": "#!/bin/sh\necho 0\n"}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    shutil.copy(SCRIPT, tmp_path / ".ci/run")
    for name, text in {
        **{f"bin/{name}": text for name, text in PROGRAMS.items()},
        ".venv/bin/python": PYTHON,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def run(copy: Path, **variables: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    environment = {**os.environ, "PATH": f"{copy}/bin{os.pathsep}{os.environ['PATH']}", **variables}
    done = subprocess.run([copy / ".ci/run"], env=environment, capture_output=True, text=True, timeout=60)
    return done, (copy / "calls").read_text().splitlines()


def test_every_lane_is_called_and_nothing_runs_beside_what_is_timed(copy: Path) -> None:
    done, calls = run(copy, SLOW="e2e-prepare test-simulations")
    assert done.returncode == 0, done.stderr
    called = [line.removesuffix(" begins") for line in calls if line.endswith(" begins")]
    assert sorted(called) == sorted(
        ["lint", "setup-tests", "e2e-prepare", "test-simulations", "test", "test-slow", "test-quiet", "e2e", "run"]
    )
    assert calls.index("test-simulations ends") < calls.index("test-quiet begins") < calls.index("e2e begins")
    assert "output of e2e-prepare" in done.stdout


@pytest.mark.parametrize("lane", ["e2e-prepare", "test-simulations"])
def test_what_fails_beside_the_tests_fails_the_whole_with_its_log(copy: Path, lane: str) -> None:
    done, calls = run(copy, FAILS=lane)
    assert done.returncode != 0
    assert f"why {lane} failed" in done.stdout
    assert not {"test-quiet begins", "e2e begins", "run begins"} & set(calls)


@pytest.mark.parametrize("lane", ["test-slow", "test-quiet", "e2e"])
def test_what_failed_is_repeated_alone_and_must_pass_then(copy: Path, lane: str) -> None:
    done, calls = run(copy, FAILS=lane)
    assert done.returncode == 0, done.stderr
    assert len([line for line in calls if line.startswith("alone")]) == 1
    assert f"why {lane} failed" in done.stdout
    assert run(copy, FAILS=lane, ALONE_FAILS="yes")[0].returncode != 0


def test_a_failed_lane_ends_what_runs_beside_it(copy: Path) -> None:
    done, _ = run(copy, HANGS="e2e-prepare", SLOW="test-slow", FAILS="test-slow", ALONE_FAILS="yes")
    assert done.returncode != 0
    pid = int((copy / "hanging").read_text())
    deadline = time.monotonic() + 10
    while Path("/proc", str(pid)).exists():
        assert time.monotonic() < deadline, "what .ci/run started is still running"
        time.sleep(0.05)
