"""A child that ends with its coordinator, and with nothing less."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from gputax.environments.process import ChildProcess


def test_a_child_outlives_the_thread_that_asked_for_it() -> None:
    made: list[ChildProcess] = []
    thread = threading.Thread(
        target=lambda: made.append(ChildProcess(["sleep", "60"], dict(os.environ), ends_with_parent=True))
    )
    thread.start()
    thread.join()
    (child,) = made
    try:
        time.sleep(0.2)
        assert child.poll() is None, "the end of a thread is not the end of its program"
    finally:
        child.kill()
        child.wait(10)
        for pipe in (child.stdin, child.stdout, child.stderr):
            assert pipe is not None
            pipe.close()


def test_a_child_ends_with_the_program_whatever_thread_asked_for_it(tmp_path: Path) -> None:
    script = tmp_path / "coordinator.py"
    script.write_text(
        "import os, signal, threading\n"
        "from gputax.environments.process import ChildProcess\n"
        "def start():\n"
        "    print(ChildProcess(['sleep', '60'], dict(os.environ), ends_with_parent=True).pid, flush=True)\n"
        "thread = threading.Thread(target=start)\n"
        "thread.start()\n"
        "thread.join()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    pid = int(done.stdout)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and _runs(pid):
        assert time.monotonic() < deadline, "it still runs"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
