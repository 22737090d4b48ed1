"""The engine `program`: a program of the user's, by the latencies that it prints or by the time of its processes."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gputax.errors import UsageError
from gputax.plan.own_program import DEVICE, ENGINE
from gputax.worker.engines.engine import EngineRequest, NoResponse, Samples
from gputax.worker.engines.program_process import Printer, Repetitions, Started
from gputax.worker.probes.processes import Use, use_of
from gputax.worker.workloads.model_store import file_sha256

PRINTED, TIMED = "latencies printed by the program", "processes from start to exit"
# Scripts and programs are small; a data set among the arguments is not the program.
LARGEST_HASHED = 256 << 20


class ProgramEngine:
    """Runs the user's program; one run is one repetition, and its time is the program's own."""

    def __init__(self, request: EngineRequest) -> None:
        if not request.program.words:
            raise UsageError("the engine program runs a program of yours", next_step="gputax run -- COMMAND")
        self._asked = request.program
        self.device = request.device if request.device in ("software", "cuda") else DEVICE
        self.last_ns = 0
        self._closed = False
        self._started = Started(request.program)
        try:
            self._program = Repetitions(self._started) if request.program.by_process else Printer(self._started)
        except BaseException:
            self._started.close()
            raise
        try:
            self._program.next_ns()  # what cannot run is refused here, before anything is measured
            self._program.rest()
        except BaseException:
            self.close()
            raise
        self._response = NoResponse(request.max_batch)
        self.response_address = self._response.address
        self.response_bytes = self._response.bytes_per_sample

    def facts(self) -> dict[str, Any]:
        """Return what runs, and how it is timed."""
        return {
            "engine": ENGINE,
            "provider": TIMED if self._asked.by_process else PRINTED,
            "device_name": f"whatever {Path(self._asked.words[0]).name} uses",
            "command": self._asked.text,
            "program_sha256": self._sha256(),
            "unit": self._asked.unit or "named on each line",
            "options": {},
            "threads": 0,  # its own business
            "precision": "none",
        }

    def adapt_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return them unchanged: a program has its own."""
        return inputs

    def load_samples(self, samples: Samples) -> None:
        """Need none."""

    def run(self, first: int, count: int) -> None:
        """Wait for one repetition; its time is in `last_ns`."""
        self.last_ns = self._program.next_ns()

    def wake(self) -> None:
        """Let the program run."""
        self._program.wake()

    def rest(self) -> None:
        """Stop the program until the next load."""
        self._program.rest()

    @property
    def pids(self) -> Sequence[int]:
        """The program's processes."""
        return self._program.pids

    def used(self) -> Use:
        """Return what the program has used so far."""
        return self._program.ended.plus(use_of(self._program.pids))

    def close(self) -> None:
        """End the program and whatever it started."""
        if self._closed:
            return
        self._closed = True
        self._started.close()
        self._program.close()

    def _sha256(self) -> str:
        """Return a digest of the program's file and of the files among its arguments, such as a script."""
        words = self._asked.words
        digest = hashlib.sha256()
        for path in (shutil.which(words[0]) or words[0], *words[1:]):
            with contextlib.suppress(OSError, ValueError):
                if Path(path).is_file() and Path(path).stat().st_size <= LARGEST_HASHED:
                    digest.update(file_sha256(Path(path)).encode())
        return digest.hexdigest()
