"""A worker process that can be waited for even after an interrupt hit in the middle of waiting."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import IO

POLL_S = 0.01


class ChildProcess:
    """`subprocess.Popen` without its lock.

    Popen guards `waitpid` with a lock that a KeyboardInterrupt inside `poll` can leave taken for ever; the next `wait`
    then hangs. Here every wait is one system call and nothing is held.
    """

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        # A session of its own, so that Ctrl-C reaches only the coordinator.
        self._popen = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=environment,
        )
        self.pid = self._popen.pid
        self.stdin: IO[bytes] | None = self._popen.stdin
        self.stdout: IO[bytes] | None = self._popen.stdout
        self.stderr: IO[bytes] | None = self._popen.stderr

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs; negative for the signal that ended it."""
        if self._popen.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                # An interrupt fell between the system call and the note of its answer: it has ended, how is lost.
                self._popen.returncode = 0
            else:
                if pid:
                    self._popen.returncode = os.waitstatus_to_exitcode(status)
        return self._popen.returncode

    def kill(self) -> None:
        """End it at once."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("worker", timeout or 0.0)
            time.sleep(POLL_S)
        return code
