"""A user's program in this environment: started, stopped while the other side has its turn, read line by line."""

from __future__ import annotations

import contextlib
import os
import pty
import resource
import select
import signal
import subprocess
import tempfile
import time
import tty
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from gputax.errors import EngineError, GputaxError, PreflightError
from gputax.plan.own_program import UNITS, NoUnit, OwnProgram, latency_ns
from gputax.text import printable
from gputax.worker.probes.processes import Use

# Loading a model or compiling a kernel comes before the first line; a program that is silent after it hangs.
# Less than the coordinator waits for a worker without progress.
FIRST_LINE_S, NEXT_LINE_S = 600.0, 45.0
PROCESS_S = 600.0
READ_BYTES = 65536
SHOWN_CHARACTERS = 80
# Latencies that began before the program was woken; as many as this are not those of a stop, but of a wrong unit.
MOST_TOO_LONG = 1000
KEPT_PIDS = 16
KEPT_STDERR_BYTES = 400
MOST_STDERR_BYTES = 1 << 20
# For a program that asks: nobody reads colours.
PLAIN = {"TERM": "dumb", "NO_COLOR": "1"}
# The worker ignores them, and a program that it starts would inherit that.
RESTORED = (signal.SIGINT, signal.SIGPIPE)
WHERE = "your program"
Action: TypeAlias = tuple[int, int, int] | tuple[int, int, str, int, int]
_NO_INPUT: Action = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)


class Keeper:
    """A shell that kills the programs when this worker is gone, however it went."""

    # It waits for the end of its input. Repetitions are in its own process group. A program that is stopped now and
    # then has a group of its own, whose number it reads: a stopped keeper would keep nothing.
    SCRIPT = "g=$$; while read n; do g=$n; done; kill -s KILL -- -$g"

    def __init__(self) -> None:
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", self.SCRIPT],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        except OSError as error:
            raise PreflightError(
                f"a program of yours needs /bin/sh beside it ({error.strerror})", where=WHERE
            ) from error
        self.group = self._process.pid

    def keep(self, group: int) -> None:
        """Name the process group to kill."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{group}\n".encode())
        self._process.stdin.flush()

    def close(self) -> None:
        """Kill what it keeps, and itself."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()


class Started:
    """Starts the program's processes, and keeps what they write to stderr."""

    def __init__(self, program: OwnProgram) -> None:
        self.asked = program
        self.keeper = Keeper()
        self._stderr, name = tempfile.mkstemp(prefix="gputax-stderr-")
        Path(name).unlink()  # the descriptor is enough, and nothing is left behind
        # Made once: to copy 38 variables took 98 µs on a busy machine, and would be in every repetition.
        self._variables = {**os.environ, **PLAIN}
        no_output = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
        self._discarded: list[Action] = [_NO_INPUT, no_output, (os.POSIX_SPAWN_DUP2, self._stderr, 2)]

    def start(self, stdout: int | None, group: int) -> int:
        """Start one process in a process group, 0 for one of its own; stdout None is discarded. Returns its id."""
        actions = self._discarded if stdout is None else self._shown(stdout)
        words = self.asked.words
        try:
            return os.posix_spawnp(
                words[0], list(words), self._variables, file_actions=actions, setpgroup=group, setsigdef=RESTORED
            )
        except OSError as error:
            raise PreflightError(
                f"{words[0]} cannot be started: {error.strerror}",
                where=f"{WHERE}, in {Path.cwd()}",
                next_step="it must exist where the worker runs: in the image, on the host; a path counts from there",
            ) from error

    def failed(self, code: int) -> EngineError:
        """Return the error for a process that ended badly, with its last words."""
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return EngineError(f"the program {how}; {self.last_words()}", where=WHERE, next_step="run it by hand first")

    def last_words(self) -> str:
        """Return what it last wrote to stderr."""
        size = os.fstat(self._stderr).st_size
        data = os.pread(self._stderr, KEPT_STDERR_BYTES, max(0, size - KEPT_STDERR_BYTES))
        text = " ".join(printable(line) for line in data.decode(errors="replace").split("\n") if line.strip())
        return f"its last output to stderr: {text}" if text else "it wrote nothing to stderr"

    def forget_words(self) -> None:
        """Empty the file of a program that writes much; between two measurements."""
        if os.fstat(self._stderr).st_size > MOST_STDERR_BYTES:
            os.ftruncate(self._stderr, 0)
            os.lseek(self._stderr, 0, os.SEEK_SET)  # it is shared with the program

    def close(self) -> None:
        """Kill every process, and forget what they wrote."""
        self.keeper.close()
        os.close(self._stderr)

    def _shown(self, stdout: int) -> list[Action]:
        return [_NO_INPUT, (os.POSIX_SPAWN_DUP2, stdout, 1), (os.POSIX_SPAWN_DUP2, self._stderr, 2)]


class Repetitions:
    """One process is one repetition, timed from its start to its exit."""

    def __init__(self, started: Started) -> None:
        self._started = started
        self._limit_s = started.asked.timeout_s or PROCESS_S
        self.ended = Use()
        """What the processes that have ended used."""
        self._last_pids: deque[int] = deque(maxlen=KEPT_PIDS)

    def next_ns(self) -> int:
        """Run it once and return how long it took."""
        begun_ns = time.perf_counter_ns()
        pid = self._started.start(None, self._started.keeper.group)
        self._last_pids.append(pid)
        descriptor = os.pidfd_open(pid)
        try:
            ended = select.poll()
            ended.register(descriptor, select.POLLIN)
            in_time = ended.poll(self._limit_s * 1000)
            took_ns = time.perf_counter_ns() - begun_ns
        finally:
            os.close(descriptor)
        if not in_time:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise EngineError(
                f"the program did not end within {self._limit_s:g} s",
                where=WHERE,
                next_step="raise --stall-timeout, or drop --repeat-by-process if it prints its latencies",
            )
        _, status, used = os.wait4(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if code:
            raise self._started.failed(code)
        self.ended = self.ended.plus(_used(used))
        return took_ns

    def wake(self) -> None:
        """Nothing runs between two repetitions."""
        self._started.forget_words()

    def rest(self) -> None:
        """Nothing runs between two repetitions."""

    @property
    def pids(self) -> Sequence[int]:
        """The last ones, which have ended."""
        return tuple(self._last_pids)

    def close(self) -> None:
        """Nothing is left of a repetition."""


def _used(used: resource.struct_rusage) -> Use:
    return Use(round((used.ru_utime + used.ru_stime) * 1e9), 0, used.ru_nvcsw, used.ru_nivcsw)


class Printer:
    """One process that prints a latency per line; stopped at rest. One that ends well is started again."""

    def __init__(self, started: Started) -> None:
        self._started = started
        self._unit = started.asked.unit
        # On a terminal C and Python write each line at once; into a pipe they would write 4 KiB of old latencies.
        self._terminal, self._inner = pty.openpty()
        tty.setraw(self._inner)
        os.set_blocking(self._terminal, False)
        self.ended = Use()
        """What the processes that have ended used."""
        self._buffer = b""
        self._banner: list[str] = []
        self._printed = 0
        self._skip_line = False
        self._woken_ns = time.perf_counter_ns()
        self._pid = 0
        self._limit_s = started.asked.timeout_s
        self._start()

    def _start(self) -> None:
        self._pid = self._started.start(self._inner, 0)
        self._started.keeper.keep(self._pid)
        self._descriptor = os.pidfd_open(self._pid)
        self._poll = select.poll()
        self._poll.register(self._terminal, select.POLLIN)
        self._poll.register(self._descriptor, select.POLLIN)
        self._reaped = False
        self._printed = 0
        self._banner.clear()

    @property
    def pids(self) -> Sequence[int]:
        """The process."""
        return (self._pid,)

    def wake(self) -> None:
        """Let it run; what it printed before is not of this measurement."""
        self._started.forget_words()
        self._drain()
        self._woken_ns = time.perf_counter_ns()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGCONT)

    def rest(self) -> None:
        """Stop it: the other side has its turn, and two programs at once would measure each other."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGSTOP)

    def next_ns(self) -> int:
        """Wait for a latency that began after the last wake: a repetition that was stopped took too long."""
        too_long = 0
        while True:
            found_ns = self._latency()
            if time.perf_counter_ns() - found_ns >= self._woken_ns:
                return found_ns
            too_long += 1
            if too_long > MOST_TOO_LONG:
                raise EngineError(
                    f"{too_long} latencies such as {found_ns / 1e9:g} s are longer than the program has been awake",
                    where=WHERE,
                    next_step=f"check the unit ({', '.join(UNITS)}); each latency must be printed when it is known",
                )

    def _latency(self) -> int:
        while True:
            line = self._line()
            if self._skip_line:
                self._skip_line = False
                continue
            text = line.decode(errors="replace").strip()
            if not text:
                continue
            try:
                found_ns = latency_ns(text, self._unit)
            except NoUnit as error:
                raise EngineError(
                    f"the program printed {text!r}, a number without a unit",
                    where=WHERE,
                    next_step=f"add --unit ({', '.join(UNITS)}), or let it print 12.3ms",
                ) from error
            if found_ns is not None:
                self._printed += 1
                return found_ns
            if self._printed:
                raise EngineError(
                    f"the program printed {printable(text[:SHOWN_CHARACTERS])!r}, which is not a latency",
                    where=WHERE,
                    next_step="after its first latency every line must be one; print other text to stderr",
                )
            self._banner.append(printable(text[:SHOWN_CHARACTERS]))
            del self._banner[1:-2]

    def _line(self) -> bytes:
        limit_s = self._limit_s or (NEXT_LINE_S if self._printed else FIRST_LINE_S)
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            if not self._poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise self._silent(limit_s)
            data = self._read()
            self._buffer += data
            if not data:
                self._restart()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _read(self) -> bytes:
        try:
            return os.read(self._terminal, READ_BYTES)
        except OSError:  # would block
            return b""

    def _restart(self) -> None:
        """Start it again if it has ended well and has printed something; raise if not."""
        pid, status, used = os.wait4(self._pid, os.WNOHANG)
        if not pid:
            return
        self._reaped = True
        os.close(self._descriptor)
        self.ended = self.ended.plus(_used(used))
        code = os.waitstatus_to_exitcode(status)
        if code:
            raise self._started.failed(code)
        if not self._printed:
            raise EngineError(
                "the program ended without printing a latency" + self._shown_banner(),
                where=WHERE,
                next_step="let it print one latency per line, or add --repeat-by-process to time the whole program",
            )
        self._start()

    def _silent(self, limit_s: float) -> GputaxError:
        what = "no latency yet" if not self._printed else "nothing more"
        return EngineError(
            f"the program hangs: {what} after {limit_s:g} s{self._shown_banner()}",
            where=WHERE,
            next_step=f"raise --stall-timeout if it is just slow; {self._started.last_words()}",
        )

    def _shown_banner(self) -> str:
        return f"; it printed: {' | '.join(self._banner)}" if self._banner and not self._printed else ""

    def _drain(self) -> None:
        """Drop what is in the terminal; if a line is cut, its rest is dropped when it comes."""
        while data := self._read():
            self._buffer += data
        self._skip_line = bool(self._buffer) and not self._buffer.endswith(b"\n")
        self._buffer = b""

    def close(self) -> None:
        """Close the terminal, and wait for the process that the keeper has killed."""
        if not self._reaped:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
            os.close(self._descriptor)
        os.close(self._terminal)
        os.close(self._inner)
