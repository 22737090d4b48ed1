"""The worker's own directory for temporary files: removed by the coordinator, or here if that is gone."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

# Separate from TMPDIR, which others may use: only a directory created for this worker may be removed.
VARIABLE = "GPUTAX_SCRATCH"
# A load that still runs may write a file between the listing and the removal.
TRIES = 20


def scratch() -> Path:
    """Return the directory; a worker for which the coordinator has created none, on another machine, creates it."""
    if not os.environ.get(VARIABLE):
        os.environ[VARIABLE] = tempfile.mkdtemp(prefix="gputax-worker-")
    return Path(os.environ[VARIABLE])


def remove_scratch() -> None:
    """Remove the directory created for this worker, if there is one."""
    name = os.environ.get(VARIABLE)
    for _ in range(TRIES if name else 0):
        shutil.rmtree(str(name), ignore_errors=True)
        if not Path(str(name)).exists():
            return
