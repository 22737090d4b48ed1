"""A place to run make targets in, whose kubectl, helm, curl and tar only write down how they were called."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

# All that the recipes use of a system; only these are on the path, so that no real cluster can be reached by mistake.
SYSTEM = ("awk", "basename", "bash", "cat", "grep", "head", "make", "mkdir", "paste", "rm", "sed", "sh", "tail", "true")
STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*" >>"$CALLS"
case "$*" in
  *"get --raw /version"*)
    [ -n "$CLUSTER" ] || { echo 'The connection to the server localhost:8080 was refused' >&2; exit 1; }
    echo '{ "gitVersion": "v1.36.1" }' ;;
  *"get nodes -l cloud.google.com/gke-accelerator"*) echo "$GKE_NODES" ;;
  *"get nodes"*) printf '%b' "$NODES" ;;
  *"get daemonsets"*) printf '%b' "$DAEMON_SETS" ;;
  *"get clusterpolicies"*) echo "$POLICIES" ;;
  *"get deviceclasses"*) echo "$DEVICE_CLASSES" ;;
  *kustomize*)
    # With the path of the system, because a kubectl may itself look for others on it.
    for last; do :; done
    if [ -n "$REAL_KUBECTL" ]; then PATH=$SYSTEM_PATH; export PATH; exec "$REAL_KUBECTL" kustomize "$last"; fi ;;
esac
"""


@dataclass
class Site:
    """A copy of what the targets need, with stand-ins for the tools that reach out."""

    directory: Path
    settings: dict[str, str] = field(default_factory=lambda: {"CLUSTER": "yes"})

    def make(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": str(self.directory / "bin"),
            "CALLS": str(self.directory / "calls"),
            "REAL_KUBECTL": shutil.which("kubectl") or "",
            "SYSTEM_PATH": os.environ["PATH"],
            **self.settings,
        }
        return subprocess.run(
            ["make", *words], cwd=self.directory, env=environment, capture_output=True, text=True, timeout=60
        )

    def without(self, tool: str) -> None:
        (self.directory / "bin" / tool).unlink()

    def calls(self) -> list[str]:
        path = self.directory / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def changes(self) -> list[str]:
        """Return the calls that change a cluster."""
        verbs = (" apply ", " delete ", " label ", " patch ", " create ", " upgrade ", " scale ")
        return [call for call in self.calls() if any(verb in call for verb in verbs) and "--dry-run=client" not in call]
