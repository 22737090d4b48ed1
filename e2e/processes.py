"""Start the cluster's daemons, remember them by pid, and end them by it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from e2e.layout import REPOSITORY, Layout

# Daemons outlive the command that starts them. Held here, so that a test's Python does not warn of a lost process.
_children: list[subprocess.Popen[bytes]] = []


class ClusterError(Exception):
    """What went wrong and what to do next, in one or a few lines."""


def start(layout: Layout, name: str, command: Sequence[str | Path]) -> None:
    """Start a daemon in its own session, with its log, and write down who it is."""
    with (layout.logs / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=REPOSITORY,
        )
    _children.append(process)
    record = {"pid": process.pid, "started": _start_time(process.pid), "command": [str(part) for part in command]}
    (layout.processes / name).write_text(json.dumps(record))


def pid_of(layout: Layout, name: str) -> int | None:
    """Return the daemon's pid if it still is that very process."""
    try:
        record = json.loads((layout.processes / name).read_text())
    except FileNotFoundError:
        return None
    pid = int(record["pid"])
    return pid if record["started"] is not None and _start_time(pid) == record["started"] else None


def command_of(layout: Layout, name: str) -> list[str]:
    """Return the command that a daemon was started with."""
    return list(json.loads((layout.processes / name).read_text())["command"])


def stop(layout: Layout, name: str, patience_s: float = 5) -> None:
    """End a daemon: SIGTERM, after some patience SIGKILL."""
    pid = pid_of(layout, name)
    if pid is not None:
        end(pid, patience_s)


def end(pid: int, patience_s: float) -> None:
    """End any process by its pid and return when it is gone."""
    started = _start_time(pid)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            if _start_time(pid) != started:
                return
            time.sleep(0.02)


def wait_until(what: str, ready: Callable[[], bool], layout: Layout, name: str, limit_s: float = 60) -> None:
    """Poll until something holds; a daemon that dies meanwhile is reported with the end of its log."""
    deadline = time.monotonic() + limit_s
    while not ready():
        if pid_of(layout, name) is None:
            raise ClusterError(f"{name} ended before {what}:\n{log_end(layout, name)}")
        if time.monotonic() > deadline:
            raise ClusterError(f"{what}: not within {limit_s:.0f} s. Last lines of {name}:\n{log_end(layout, name)}")
        time.sleep(0.05)


def log_end(layout: Layout, name: str, lines: int = 12) -> str:
    """Return the last lines of a daemon's log."""
    path = layout.logs / f"{name}.log"
    text = path.read_text(errors="replace") if path.exists() else ""
    return "\n".join(text.splitlines()[-lines:])


def _start_time(pid: int) -> int | None:
    """Return when a process began, in clock ticks; None if it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else int(fields[19])
