"""gVisor's runsc, built once from Go modules and kept like the Kubernetes binaries."""

from __future__ import annotations

import subprocess
from pathlib import Path

from e2e.layout import REPOSITORY
from e2e.processes import ClusterError

SCRIPT = REPOSITORY / "e2e/gvisor/build.sh"


def runsc_place() -> Path:
    """Return where the program is, or will be once built."""
    return Path(subprocess.run([SCRIPT, "--where"], check=True, capture_output=True, text=True).stdout.strip())


def runsc() -> Path:
    """Return the program, built if it is not there yet."""
    done = subprocess.run([SCRIPT], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise ClusterError("runsc cannot be built; the lines above say why")
    return Path(done.stdout.strip())
