"""A place for two tenants that behave as a test says, with real worker processes and a real conversation."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gputax.environments.environment import Described, Evidence
from gputax.environments.process import ChildProcess
from gputax.plan.cells import Setup
from gputax.plan.techniques import Entitlement, Technique
from gputax.sharing.place import Say, Switched, Tenant
from tests.standins.scripted_worker import STATE_BYTES

SCRIPT = Path(__file__).with_name("scripted_worker.py")
PINNED = "import os, runpy; os.sched_setaffinity(0, {{{core}}}); runpy.run_module('gputax.worker', run_name='__main__')"


class StartedBy:
    """An environment that is one command line."""

    name = "bare+test"

    def __init__(self, words: list[str], started: list[int]) -> None:
        self._words, self._started = words, started

    def start(self) -> ChildProcess:
        process = ChildProcess(self._words, dict(os.environ))
        self._started.append(process.pid)
        return process

    def evidence(self, described: Described) -> Evidence:
        return Evidence({"active": True, "pid": described.pid})


class Neighbourhood:
    """A shared place whose tenants are scripted workers or, with `core`, real ones that are bound to one core."""

    name = "bare"

    def __init__(self, directory: Path, *habits: str, core: int | None = None) -> None:
        self.state = directory / "state"
        self.state.write_bytes(bytes(STATE_BYTES))
        self.words = [sys.executable, str(SCRIPT), str(self.state), *habits]
        if core is not None:
            self.words = [sys.executable, "-c", PINNED.format(core=core)]
        self.started: list[int] = []
        self.reasons: list[str] = []
        self.switched: list[str] = []
        self.closed = 0

    def switch(self, technique: Technique, parts: int, say: Say) -> Switched:
        self.switched.append(technique.name)
        return Switched(0.0)

    def tenants(self, technique: Technique, count: int, parts: int, setup: Setup) -> list[Tenant]:
        return [Tenant(StartedBy(self.words, self.started), setup, Entitlement("all", 1.0)) for _ in range(count)]

    def evidence(self, technique: Technique, tenants: Sequence[Evidence], described: Sequence[Described]) -> Evidence:
        assert len(tenants) == len(described) == 2
        return Evidence({"active": not self.reasons, "reasons": self.reasons})

    def files(self) -> dict[str, str]:
        return {"place.txt": "as it was\n"}

    def close(self) -> None:
        self.closed += 1

    def left_over(self) -> list[int]:
        """Return the workers that still run."""
        return [pid for pid in self.started if Path(f"/proc/{pid}").exists()]
