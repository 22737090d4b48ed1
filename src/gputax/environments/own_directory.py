"""A temporary directory that goes with its process: at its end, or when the next gputax finds that it was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from gputax.errors import PreflightError

PREFIX = "gputax-"
OWNER = ".owner"
"""A file that its process holds locked; the kernel lets go of it however the process ends."""


@contextmanager
def own_directory(kind: str, below: Path | None = None) -> Iterator[Path]:
    """Make a directory that only we can enter, below TMPDIR if nothing is said, and remove it afterwards."""
    place = below or Path(tempfile.gettempdir())
    _remove_orphans(place)
    with contextlib.ExitStack() as at_the_end:
        try:
            directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-", dir=place))
            at_the_end.callback(shutil.rmtree, directory, ignore_errors=True)
            at_the_end.enter_context(_held(directory))
        except OSError as error:
            raise PreflightError(
                f"no place for temporary files: {error.strerror or error}",
                where=str(error.filename or "TMPDIR"),
                next_step="set TMPDIR to a directory with room that you may write to",
            ) from error
        yield directory


def _held(directory: Path) -> TextIO:
    """Return the owner's file, locked while it is open."""
    # Locked before it has its name: whoever finds it under that name finds it locked.
    unnamed = directory / f"{OWNER}.new"
    file = unnamed.open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    unnamed.rename(directory / OWNER)
    return file


def _remove_orphans(place: Path) -> None:
    """Remove what our processes left that were killed; a directory without the file is somebody else's."""
    for owner in place.glob(f"{PREFIX}*/{OWNER}"):
        if _abandoned(owner):
            shutil.rmtree(owner.parent, ignore_errors=True)


def _abandoned(owner: Path) -> bool:
    """Whether the file is ours and no living process holds it."""
    try:
        # TMPDIR is open to all: a pipe or a link under this name must not hold us up or lead us elsewhere.
        descriptor = os.open(owner, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(descriptor).st_uid == os.getuid()
    except OSError:
        return False
    finally:
        os.close(descriptor)
