"""`bare`: the worker is a process of this machine, with nothing in between."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any


class Bare:
    """Starts the worker with the interpreter that runs the coordinator."""

    name = "bare"

    def start(self) -> subprocess.Popen[bytes]:
        """Start a worker in a session of its own, so that Ctrl-C reaches only the coordinator."""
        return subprocess.Popen(
            [sys.executable, "-m", "gputax.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

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
