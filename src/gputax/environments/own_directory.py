"""A temporary directory that is removed with its process, or by the next gputax if the process was killed."""

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
"""A file locked by the owning process; the kernel releases the lock however the process ends."""


@contextmanager
def own_directory(kind: str, below: Path | None = None) -> Iterator[Path]:
    """Create a private directory, below TMPDIR by default, and remove it afterwards."""
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
                next_step="set TMPDIR to a writable directory with free space",
            ) from error
        yield directory


def _held(directory: Path) -> TextIO:
    """Return the owner's file, locked while it is open."""
    # Locked before it gets its final name, so that no other process finds it unlocked.
    unnamed = directory / f"{OWNER}.new"
    file = unnamed.open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    unnamed.rename(directory / OWNER)
    return file


def _remove_orphans(place: Path) -> None:
    """Remove the directories of killed gputax processes; a directory without the owner file is not ours."""
    for owner in place.glob(f"{PREFIX}*/{OWNER}"):
        if _abandoned(owner):
            shutil.rmtree(owner.parent, ignore_errors=True)


def _abandoned(owner: Path) -> bool:
    """Whether the file is ours and no running process holds it."""
    try:
        # Anyone can write to TMPDIR: a FIFO under this name must not block us, and a link must not redirect us.
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
