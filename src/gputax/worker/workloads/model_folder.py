"""The folder of model files: its path, its locks and its errors."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from gputax.errors import PreflightError

Progress: TypeAlias = Callable[[int, int], None]
"""(bytes done, bytes in all; 0 if unknown)."""

ENVIRONMENT_VARIABLE = "GPUTAX_MODELS"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def models_folder() -> Path:
    """Return the folder of all models: $GPUTAX_MODELS, else the user's cache."""
    chosen = os.environ.get(ENVIRONMENT_VARIABLE, "")
    if chosen:
        return Path(chosen).expanduser().absolute()
    # The XDG specification says that a relative path must be ignored.
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (cache if cache.is_absolute() else Path.home() / ".cache") / "gputax" / "models"
    except RuntimeError as error:
        raise PreflightError(
            "no home directory to keep models in", next_step=f"set {ENVIRONMENT_VARIABLE} to a directory"
        ) from error


@contextmanager
def locked(model: Path, *, exclusive: bool) -> Iterator[float]:
    """Hold the model's lock (shared by readers) and yield the seconds waited for it."""
    descriptor = _open_lock(model.with_suffix(".lock"), create=exclusive)
    started = time.monotonic()
    try:
        if descriptor >= 0:
            _flock(descriptor, model.parent, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield time.monotonic() - started
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _open_lock(path: Path, *, create: bool) -> int:
    """Open the lock file; -1 if a reader finds none, as on a read-only mount."""
    if create:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise storage_error(error, path.parent) from error
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _flock(descriptor: int, folder: Path, kind: int) -> None:
    try:
        fcntl.flock(descriptor, kind)
    except OSError as error:
        raise PreflightError(
            f"this file system has no file locks ({error.strerror})",
            where=str(folder),
            next_step=f"set {ENVIRONMENT_VARIABLE} to a directory on a local disk",
        ) from error


def require_space(folder: Path, needed: int) -> None:
    """Fail early if the files cannot fit, instead of after a gigabyte."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise PreflightError(
            f"not enough disk space: {needed / 1e9:.2f} GB needed, {free / 1e9:.2f} GB free",
            where=str(folder),
            next_step=_other_folder(needed),
        )


def storage_error(error: OSError, folder: Path, needed: int = 0) -> PreflightError:
    """Return an OS error about a file as an error with a next step."""
    if error.errno in _FULL:
        what = f"the disk is full or a limit on file size was reached ({error.strerror})"
    else:
        what = f"cannot write models here ({error.strerror or error})"
    return PreflightError(what, where=str(folder), next_step=_other_folder(needed))


def _other_folder(needed: int) -> str:
    room = f" with {needed / 1e9:.1f} GB free" if needed else ""
    return f"set {ENVIRONMENT_VARIABLE} to a writable directory{room}"
