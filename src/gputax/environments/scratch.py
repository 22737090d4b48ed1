"""A directory for a worker's temporary files, which goes with the worker however that ended."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gputax.environments.own_directory import own_directory
from gputax.worker.scratch import VARIABLE


@contextmanager
def worker_scratch() -> Iterator[dict[str, str]]:
    """Give the variables that name the directory; it is removed with all that a killed worker left there."""
    # torch keeps compiled kernels below TMPDIR: there each new worker would compile again.
    kept = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(
        Path(tempfile.gettempdir()) / f"torchinductor-{os.getuid()}"
    )
    with own_directory("worker") as directory:
        yield {"TMPDIR": str(directory), VARIABLE: str(directory), "TORCHINDUCTOR_CACHE_DIR": kept}
