"""`bare`: the worker is a process of this machine, with nothing in between."""

from __future__ import annotations

import os
import sys
from typing import Any

from gputax.environments.child import ChildProcess


class Bare:
    """Starts the worker with the interpreter that runs the coordinator."""

    name = "bare"

    def start(self) -> ChildProcess:
        """Start a worker as a child of this process."""
        return ChildProcess([sys.executable, "-m", "gputax.worker"], {**os.environ, "PYTHONUNBUFFERED": "1"})

    def evidence(self, described: dict[str, Any]) -> dict[str, Any]:
        """Tell that no container lies between: the worker's own cgroup, pid and host name."""
        host = described.get("host", {})
        return {
            "layer": "none",
            "active": True,
            "pid": described.get("pid"),
            "container_hints": host.get("container_hints"),
            "cgroup": host.get("cgroup"),
        }
