"""The connection to a worker: send requests, forward events, and kill a worker that hangs or breaks the protocol."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import threading
import time
from collections.abc import Callable
from typing import IO, Any

from gputax import __version__
from gputax.environments.environment import Described, Environment, ExplainsItsEnd, Proven
from gputax.errors import GputaxError, PreflightError, WorkerError, error_from_dict
from gputax.worker.protocol import MAX_LINE_BYTES, PROTOCOL_VERSION, decode_message, encode_message

OnEvent = Callable[[dict[str, Any]], None]
# Remote shells may print a banner before the worker starts; more than this is not a banner.
MAX_NONSENSE_BYTES = 64 * 1024
KEPT_STDERR_BYTES = 16 * 1024
READ_BYTES = 1 << 20
CLOSE_TIMEOUT_S = 10.0
# A process that closed its pipe is about to exit; wait for its exit code, which gives the reason.
LAST_WORDS_S = 1.0
LAST_OUTPUT = "last stderr output"


class WorkerConnection:
    """One worker from start to exit. As a context manager it always ends the process."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self._process = environment.start()
        self._buffer = bytearray()
        self._scanned = 0
        self._nonsense = bytearray()
        self._next_id = 0
        self._stderr = bytearray()
        self._stderr_reader = threading.Thread(target=self._keep_stderr, name="worker-stderr", daemon=True)
        self._stderr_reader.start()

    @property
    def pid(self) -> int:
        """The process that this connection must end."""
        return self._process.pid

    def describe(self, **parameters: Any) -> Described:
        """Ask the worker to describe where it runs, and check that versions and protocols match."""
        described = self.call("describe", stall_timeout_s=120.0, **parameters)
        if described.get("protocol") != PROTOCOL_VERSION:
            raise WorkerError(
                f"the worker speaks protocol {described.get('protocol')}, this gputax speaks {PROTOCOL_VERSION}",
                where=f"environment {self.environment.name}",
                next_step="install the same gputax version on both sides",
            )
        if described.get("version") != __version__:
            raise PreflightError(
                f"the worker is gputax {described.get('version')}, this is gputax {__version__}",
                where=f"environment {self.environment.name}",
                next_step="install the same version on both sides; rebuild the image, or select another with --image",
            )
        return Described(described)

    def proven(self, described: Described | None = None, *, uses_driver: bool, stall_timeout_s: float) -> Proven:
        """Return the environment's evidence after a load, and the description on which it is based.

        A worker that was already described is asked only about its driver, and only if it uses one.
        """
        described = described or self.describe()
        if uses_driver:
            driver = self.call("describe", about="driver", stall_timeout_s=stall_timeout_s)
            described = described.with_driver(driver)
        evidence = self.environment.evidence(described)
        if described.answers:
            evidence = evidence.and_facts({"answers_checked": described.answers})
        return Proven(evidence, described)

    def call(
        self, op: str, *, stall_timeout_s: float, on_event: OnEvent | None = None, **parameters: Any
    ) -> dict[str, Any]:
        """Send one request and return its result; kill a worker that reports no progress for `stall_timeout_s`."""
        self._next_id += 1
        self._send({"id": self._next_id, "op": op, **parameters})
        last_progress = time.monotonic()
        last_done: Any = None
        while True:
            line = self._read_line(op, last_progress + stall_timeout_s, stall_timeout_s)
            message = self._understood(line)
            if message is None or message.get("id") != self._next_id:
                continue
            if "result" in message and isinstance(message["result"], dict):
                return message["result"]
            if "error" in message and isinstance(message["error"], dict):
                raise error_from_dict(message["error"])
            event = message.get("event")
            if isinstance(event, dict):
                # A count that does not change is not progress; any other event is.
                if event.get("done") is None or event["done"] != last_done:
                    last_progress = time.monotonic()
                    last_done = event.get("done")
                if on_event:
                    on_event(event)

    def close(self) -> None:
        """Ask the worker to exit and make sure that it does."""
        try:
            if self._process.poll() is None:
                self.call("close", stall_timeout_s=CLOSE_TIMEOUT_S)
                self._process.wait(CLOSE_TIMEOUT_S)
        except (WorkerError, subprocess.TimeoutExpired, OSError):
            pass  # it did not exit by itself: `end` kills it
        finally:
            self.end()

    def end(self) -> None:
        """Kill the process and close its pipes."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._stderr_reader.join(timeout=2.0)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    @property
    def ended(self) -> bool:
        """Whether the process has exited."""
        return self._process.poll() is not None

    def __enter__(self) -> WorkerConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def stderr_tail(self) -> str:
        """Return the last part of the worker's stderr."""
        return bytes(self._stderr[-2000:]).decode(errors="replace").strip()

    def _send(self, message: dict[str, Any]) -> None:
        stdin = _pipe(self._process.stdin)
        try:
            stdin.write(encode_message(message))
            stdin.flush()
        except (BrokenPipeError, ValueError, OSError) as error:
            raise self._died() from error

    def _read_line(self, op: str, deadline: float, stall_timeout_s: float) -> bytes:
        descriptor = _pipe(self._process.stdout).fileno()
        while True:
            newline = self._buffer.find(b"\n", self._scanned)
            if newline >= 0:
                line = bytes(self._buffer[:newline])
                del self._buffer[: newline + 1]
                self._scanned = 0
                return line
            self._scanned = len(self._buffer)
            if len(self._buffer) > MAX_LINE_BYTES:
                self.end()
                raise WorkerError("the worker sent one line of more than 512 MiB", where=self._where())
            remaining_s = deadline - time.monotonic()
            ready, _, _ = select.select([descriptor], [], [], max(0.0, remaining_s))
            if not ready:
                self.end()
                explained = self._explained(self._process.wait())
                raise explained or WorkerError(
                    f"no progress in {op!r} for {stall_timeout_s:g} s: the worker was killed",
                    where=self._where(),
                    next_step="raise --stall-timeout if the device is just slow; " + self._last_output(),
                )
            data = os.read(descriptor, READ_BYTES)
            if not data:
                raise self._died()
            self._buffer += data

    def _understood(self, line: bytes) -> dict[str, Any] | None:
        try:
            return decode_message(line)
        except (ValueError, RecursionError):
            self._nonsense += line[:MAX_NONSENSE_BYTES] + b"\n"
        if len(self._nonsense) > MAX_NONSENSE_BYTES:
            self.end()
            sample = bytes(self._nonsense[:80]).decode(errors="replace")
            raise WorkerError(
                f"unexpected output on the worker's stdout: {sample!r}…",
                where=self._where(),
                next_step="nothing in the environment may print to the worker's stdout (shell profiles often do)",
            )
        return None

    def _keep_stderr(self) -> None:
        pipe = _pipe(self._process.stderr)
        with contextlib.suppress(ValueError, OSError):
            while data := os.read(pipe.fileno(), 65536):
                self._stderr += data
                del self._stderr[:-KEPT_STDERR_BYTES]

    def _explained(self, code: int) -> GputaxError | None:
        return self._process.explain(code, self._words()) if isinstance(self._process, ExplainsItsEnd) else None

    def _died(self) -> GputaxError:
        # Its own exit code is more useful than the signal with which we would kill it now.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(LAST_WORDS_S)
        self.end()
        code = self._process.wait()
        explained = self._explained(code)
        if explained is not None:
            return explained
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        memory = " (out of memory?)" if code == -9 else ""
        return WorkerError(
            f"the worker {how}{memory} before it answered",
            where=self._where(),
            next_step=self._last_output(),
        )

    def _where(self) -> str:
        return f"environment {self.environment.name}, worker pid {self.pid}"

    def _last_output(self) -> str:
        return f"{LAST_OUTPUT}: {self._words()}"

    def _words(self) -> str:
        return self.stderr_tail()[-600:] or "none"


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise WorkerError("the environment started a worker without pipes")
    return pipe
