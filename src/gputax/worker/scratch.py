"""The worker's own directory for temporary files: made and removed by the coordinator, by us only if it is gone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

# Beside TMPDIR, which may be anybody's: only a directory that was made for this worker may be removed.
VARIABLE = "GPUTAX_SCRATCH"
# A load that still runs may write a file between our look and our removal.
TRIES = 20


def remove_scratch() -> None:
    """Remove the directory that was made for this worker, if there is one."""
    name = os.environ.get(VARIABLE)
    for _ in range(TRIES if name else 0):
        shutil.rmtree(str(name), ignore_errors=True)
        if not Path(str(name)).exists():
            return
