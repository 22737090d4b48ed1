"""A directory for a worker's temporary files, which goes with the worker however that ended."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gputax.errors import PreflightError
from gputax.worker.scratch import VARIABLE


@contextmanager
def worker_scratch() -> Iterator[dict[str, str]]:
    """Give the variables that name the directory; it is removed with all that a killed worker left there."""
    try:
        directory = tempfile.mkdtemp(prefix="gputax-worker-")
    except OSError as error:
        raise PreflightError(
            f"no place for the worker's temporary files: {error.strerror or error}",
            where=str(error.filename or "TMPDIR"),
            next_step="set TMPDIR to a directory with room that you may write to",
        ) from error
    # torch keeps compiled kernels below TMPDIR: there each new worker would compile again.
    kept = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(
        Path(tempfile.gettempdir()) / f"torchinductor-{os.getuid()}"
    )
    try:
        yield {"TMPDIR": directory, VARIABLE: directory, "TORCHINDUCTOR_CACHE_DIR": kept}
    finally:
        shutil.rmtree(directory, ignore_errors=True)
