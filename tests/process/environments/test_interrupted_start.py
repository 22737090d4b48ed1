"""An interrupt while a child process starts: it must not outlive the coordinator."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

# The interrupt comes where it hurts: the child runs, its owner does not have it yet.
COORDINATOR = """
import _thread, subprocess, sys, time
from gputax.environments import process

class Slow(subprocess.Popen):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        print(self.pid, flush=True)
        _thread.interrupt_main()
        time.sleep(0.3)

process.subprocess.Popen = Slow
child = None
try:
    child = process.ChildProcess([sys.executable, "-c", "import time; time.sleep(60)"], {}, ends_with_parent=ENDS)
except KeyboardInterrupt:
    print("interrupted", child, flush=True)
LATER
"""


def _coordinate(ends: str, later: str) -> list[str]:
    script = COORDINATOR.replace("ENDS", ends).replace("LATER", later)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("ends", ["False", "True"])
def test_the_child_ends_with_the_coordinator(ends: str) -> None:
    pid, *words = _coordinate(ends, "")
    assert words == ["interrupted", "None"]
    assert not Path("/proc", pid).exists()


def test_a_notebook_that_goes_on_has_no_such_child_either() -> None:
    """The interpreter lives on after the interrupt: the child ends as soon as its start has."""
    later = "\n".join(
        (
            "import pathlib",
            "deadline = time.monotonic() + 10",
            "while process._running and time.monotonic() < deadline: time.sleep(0.01)",
            "print('left', len(process._running))",
        )
    )
    started = time.monotonic()
    _, *words = _coordinate("False", later)
    assert words == ["interrupted", "None", "left", "0"]
    assert time.monotonic() - started < 10.0


def test_a_child_runs_on_the_cores_of_the_thread_that_asked() -> None:
    """The thread that forks began with all cores; its caller has been pinned since."""
    script = (
        "import os, sys\n"
        "from gputax.environments.process import ChildProcess\n"
        "words = [sys.executable, '-c', 'import os; print(sorted(os.sched_getaffinity(0)))']\n"
        "def cores():\n"
        "    child = ChildProcess(words, {})\n"
        "    text = child.stdout.read().decode().strip()\n"
        "    child.wait()\n"
        "    return text\n"
        "before = cores()\n"
        "one = min(os.sched_getaffinity(0))\n"
        "os.sched_setaffinity(0, {one})\n"
        "print(cores() == str([one]), before == cores() or len(before) > 3)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert done.stdout.split() == ["True", "True"], done.stderr
