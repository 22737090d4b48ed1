"""Write files atomically, with clear errors when the disk is full or not writable."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gputax.errors import GputaxError, PreflightError

# Enough for the logs and samples of a long suite; checked before anything is measured.
PROBE_BYTES = 4 * 1024 * 1024


def write_bytes(path: Path, data: bytes) -> None:
    """Replace the file in one step: readers see the old content or the new, never a part."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Replace a text file in one step."""
    write_bytes(path, text.encode())


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path` that replaces it at the end, or is removed on failure."""
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        temporary = Path(name)
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        raise disk_error(path, error) from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()


def probe_directory(path: Path) -> None:
    """Create the directory and write to it once, so that a bad path fails early."""
    probe = path / ".probe"
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"\0" * PROBE_BYTES)
    except OSError as error:
        failure = disk_error(path, error)
        raise PreflightError(failure.what, where=failure.where, next_step=failure.next_step) from error
    finally:
        with suppress(OSError):
            probe.unlink()


def disk_error(path: Path, error: OSError) -> GputaxError:
    """Return the error for a failed write, with a command that helps."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return GputaxError(
            "the disk is full",
            where=str(path),
            next_step=f"see `df -h {path.parent}`; the same command then resumes",
        )
    return GputaxError(
        f"cannot write: {error.strerror or error}",
        where=str(path),
        next_step="choose another directory with --out",
    )
