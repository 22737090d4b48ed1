"""Local processes: a child that can be waited for even after an interrupt, the local worker, and their directory."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import ctypes
import fcntl
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import IO, TextIO

from gputax.environments.environment import Explain
from gputax.errors import GputaxError, PreflightError
from gputax.worker.scratch import VARIABLE

PREFIX = "gputax-"
OWNER = ".owner"
"""A file locked by the owning process; the kernel releases the lock however the process ends."""


@contextmanager
def own_directory(kind: str, below: Path | None = None) -> Iterator[Path]:
    """Create a private directory, below TMPDIR by default, and remove it afterwards."""
    place = below or Path(tempfile.gettempdir())
    _remove_orphans(place)
    with contextlib.ExitStack() as at_the_end:
        try:
            directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-", dir=place))
            at_the_end.callback(shutil.rmtree, directory, ignore_errors=True)
            at_the_end.enter_context(_held(directory))
        except OSError as error:
            raise PreflightError(
                f"no place for temporary files: {error.strerror or error}",
                where=str(error.filename or "TMPDIR"),
                next_step="set TMPDIR to a writable directory with free space",
            ) from error
        yield directory


def _held(directory: Path) -> TextIO:
    """Return the owner's file, locked while it is open."""
    # Locked before it gets its final name, so that no other process finds it unlocked.
    unnamed = directory / f"{OWNER}.new"
    file = unnamed.open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    unnamed.rename(directory / OWNER)
    return file


def _remove_orphans(place: Path) -> None:
    """Remove the directories of killed gputax processes; a directory without the owner file is not ours."""
    for owner in place.glob(f"{PREFIX}*/{OWNER}"):
        if _abandoned(owner):
            shutil.rmtree(owner.parent, ignore_errors=True)


def _abandoned(owner: Path) -> bool:
    """Whether the file is ours and no running process holds it."""
    try:
        # Anyone can write to TMPDIR: a FIFO under this name must not block us, and a link must not redirect us.
        descriptor = os.open(owner, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(descriptor).st_uid == os.getuid()
    except OSError:
        return False
    finally:
        os.close(descriptor)


POLL_S = 0.01
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
START_POLL_S = 0.0005
# A start that an interrupt caught takes milliseconds more; the coordinator waits so long for it at its exit.
LATE_START_S = 10.0


class _Start:
    """One process to be started, by the thread that starts all of them."""

    def __init__(self, make: Callable[[], subprocess.Popen[bytes]]) -> None:
        self.make = make
        self.cores = os.sched_getaffinity(0)
        """Of the thread that asks: a child inherits those of the thread that forks."""
        self.child: subprocess.Popen[bytes] | None = None
        self.error: BaseException | None = None
        self.abandoned = False
        """Its owner was interrupted and will never ask for it."""


# Signals reach only the main thread: in another one no interrupt can come between the fork and the note that there is a
# child. For the kernel, the parent of a process is the thread that forked; this one lives as long as the coordinator.
# Futures and threading have locks that an interrupt can leave locked, so here are none: single operations of C only.
_to_start: queue.SimpleQueue[_Start] = queue.SimpleQueue()
_starting: set[_Start] = set()
_running: set[subprocess.Popen[bytes]] = set()
_starter: list[int] = []


def _start_processes() -> None:
    while True:
        start = _to_start.get()
        try:
            os.sched_setaffinity(0, start.cores)
            start.child = start.make()
            _running.add(start.child)
        except BaseException as error:  # raised again where it was asked for
            start.error = error
        if start.abandoned and start.child is not None:
            _end(start.child)
        _starting.discard(start)


def _started(make: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Start a process; one whose owner is interrupted meanwhile ends at once."""
    if not _starter:
        _starter.append(_thread.start_new_thread(_start_processes, ()))
    start = _Start(make)
    _starting.add(start)
    _to_start.put(start)
    try:
        while start.child is None and start.error is None:
            time.sleep(START_POLL_S)
    except BaseException:
        start.abandoned = True
        if start.child is not None:
            _end(start.child)
        raise
    if start.error is not None:
        raise start.error
    assert start.child is not None
    return start.child


class ChildProcess:
    """`subprocess.Popen` without its lock.

    Popen guards `waitpid` with a lock. A KeyboardInterrupt inside `poll` can leave it locked forever, and the next
    `wait` hangs. Here every wait is one system call without a lock.
    """

    def __init__(
        self,
        words: list[str],
        environment: dict[str, str],
        *,
        on_end: Callable[[], None] | None = None,
        ends_with_parent: bool = False,
        explain: Explain | None = None,
    ) -> None:
        def start() -> subprocess.Popen[bytes]:
            # A new session, so that Ctrl-C reaches only the coordinator.
            return subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=environment,
                preexec_fn=_end_with_parent if ends_with_parent else None,
            )

        self._popen = _started(start)
        self._on_end = on_end
        """Cleans up what was started for this process; called once, by the `wait` that sees it exit."""
        self._explain = explain
        self.pid = self._popen.pid
        self.stdin: IO[bytes] | None = self._popen.stdin
        self.stdout: IO[bytes] | None = self._popen.stdout
        self.stderr: IO[bytes] | None = self._popen.stderr

    def explain(self, code: int, words: str) -> GputaxError | None:
        """Return the environment's explanation for the exit code and the last stderr output."""
        return self._explain(code, words) if self._explain is not None else None

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs; negative for the signal that ended it."""
        if self._popen.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                # An interrupt came between the system call and storing its result: it has exited, the code is lost.
                self._popen.returncode = 0
            else:
                if pid:
                    self._popen.returncode = os.waitstatus_to_exitcode(status)
        if self._popen.returncode is not None:
            _running.discard(self._popen)
        return self._popen.returncode

    def kill(self) -> None:
        """Kill it."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it exits."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("worker", timeout or 0.0)
            time.sleep(POLL_S)
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()
        return code


@atexit.register
def _end_all() -> None:
    """End what an interrupt left running: a child that was started and not yet in anybody's care."""
    deadline = time.monotonic() + LATE_START_S
    while _starting and time.monotonic() < deadline:
        time.sleep(START_POLL_S)
    for child in tuple(_running):
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        child.kill()
        child.wait()
    _running.discard(child)


def _end_with_parent() -> None:
    """Ask the kernel to send SIGTERM when the coordinator dies: only workers notice that their pipe was closed."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def start_local_worker(surroundings: AbstractContextManager[dict[str, str]]) -> ChildProcess:
    """Start the worker with the coordinator's own interpreter, with the variables of its surroundings."""
    stack = ExitStack()
    try:
        variables = {**stack.enter_context(surroundings), **stack.enter_context(worker_scratch())}
        words = [sys.executable, "-m", "gputax.worker"]
        return ChildProcess(words, {**variables, "PYTHONUNBUFFERED": "1"}, on_end=stack.close)
    except BaseException:
        stack.close()
        raise


@contextmanager
def worker_scratch() -> Iterator[dict[str, str]]:
    """Yield the variables for a scratch directory, which is removed with everything that a killed worker left there."""
    # torch caches compiled kernels below TMPDIR: in a new directory each worker would compile them again.
    kept = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(
        Path(tempfile.gettempdir()) / f"torchinductor-{os.getuid()}"
    )
    with own_directory("worker") as directory:
        yield {"TMPDIR": str(directory), VARIABLE: str(directory), "TORCHINDUCTOR_CACHE_DIR": kept}
