"""gputax as a process of a test's own, for a fault to meet it; tests/integration/conftest.py ends what a test left."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

STARTED: list[subprocess.Popen[str]] = []


def start(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "gputax", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    STARTED.append(process)
    return process


def wait_for(process: subprocess.Popen[str], text: str) -> str:
    """Read stderr up to a line that holds the text."""
    assert process.stderr
    seen = ""
    while text not in seen:
        line = process.stderr.readline()
        assert line, f"ended before {text!r}: {seen}"
        seen += line
    return seen


def workers_of(pid: int) -> list[int]:
    """Return the children that the threads of a process started; to run `ps` would take as long as a short cell."""
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread may end under us
            found += [int(word) for word in (thread / "children").read_text().split()]
    return found


def end_all() -> None:
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
