"""`python -m gputax.worker.hold`: keeps a container alive to start workers in, and exits when no client connects.

With `--worker NAME` it becomes such a worker, after killing those named by `--end`: a client that lost its connection
to a hanging worker cannot signal it, but the next worker in the same container can.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

LOOK_EVERY_S = 5.0


def others(proc: Path = Path("/proc"), own: int | None = None) -> list[int]:
    """Return the other processes of this container."""
    mine = {os.getpid() if own is None else own}
    return sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdigit() and int(entry.name) not in mine)


def end_workers(names: list[str], proc: Path = Path("/proc")) -> list[int]:
    """Kill the processes that were started under these names; returns their ids."""
    wanted = {name.encode() for name in names}
    ended = []
    for pid in others(proc):
        with contextlib.suppress(OSError):
            words = (proc / str(pid) / "cmdline").read_bytes().split(b"\0")
            if b"--worker" in words and words[words.index(b"--worker") + 1] in wanted:
                os.kill(pid, signal.SIGKILL)
                ended.append(pid)
    return ended


def hold(idle_s: float, look_every_s: float = LOOK_EVERY_S) -> None:
    """Return after the container had no other process for this long: its client is gone."""
    idle_since = time.monotonic()
    while time.monotonic() - idle_since < idle_s:
        time.sleep(min(look_every_s, idle_s))
        if others():
            idle_since = time.monotonic()


def _end(signum: int, frame: FrameType | None) -> None:
    # A container's first process has no default action for SIGTERM: without this, deletion takes the grace period.
    os._exit(0)


def main() -> None:
    """Run as a container's first process."""
    parser = argparse.ArgumentParser(prog="hold")
    parser.add_argument("--idle-s", type=float, default=900.0)
    parser.add_argument("--worker", default="")
    parser.add_argument("--end", action="append", default=[])
    given = parser.parse_args()
    if given.worker:
        from gputax.worker.main import main as work

        end_workers(given.end)
        work()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans become our children; this lets the kernel reap them
    print(f"gputax: waiting for workers, at most {given.idle_s:g} s without one", flush=True)
    hold(given.idle_s)
    print("gputax: no worker for too long; exiting", flush=True)
    sys.exit(0)


if __name__ == "__main__":
    main()
