from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from gputax.worker.hold import end_workers


def started(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "gputax.worker.hold", *words], stdout=subprocess.PIPE)


def test_it_ends_by_itself_when_nobody_comes(tmp_path: Path) -> None:
    code = (
        "import gputax.worker.hold as hold\n"
        "hold.others = lambda: []\n"
        "hold.hold(0.3, look_every_s=0.1)\n"
        "print('ended')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert done.stdout == "ended\n"


def test_it_stays_while_a_worker_is_there() -> None:
    code = (
        "import gputax.worker.hold as hold, time\n"
        "started, busy_until = time.monotonic(), time.monotonic() + 0.6\n"
        "hold.others = lambda: [7] if time.monotonic() < busy_until else []\n"
        "hold.hold(0.3, look_every_s=0.05)\n"
        "print(time.monotonic() - started > 0.85)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert done.stdout == "True\n"


def test_sigterm_ends_it_at_once() -> None:
    holder = started("--idle-s", "100")
    assert holder.stdout is not None
    assert b"waiting for workers" in holder.stdout.readline()
    holder.send_signal(signal.SIGTERM)
    assert holder.wait(5) == 0
    holder.stdout.close()


def test_a_successor_ends_a_worker_that_hangs_and_no_other() -> None:
    sleep = "import time; time.sleep(60)"
    hung = subprocess.Popen([sys.executable, "-c", sleep, "--worker", "hung-one"])
    other = subprocess.Popen([sys.executable, "-c", sleep, "--worker", "other-one"])
    try:
        deadline = time.monotonic() + 10
        while not end_workers(["hung-one"]) and time.monotonic() < deadline:
            time.sleep(0.05)  # between fork and exec a process still has our own command line
        assert hung.wait(5) == -signal.SIGKILL
        assert other.poll() is None
        os.kill(other.pid, 0)
    finally:
        for process in (hung, other):
            process.kill()
            process.wait()
