"""The stand-in of the MPS control daemon: a socket that listens where the daemon's would."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

from e2e.device_offer import PipeDirectories

CONTROL = "control"
"""The daemon's own name for its socket."""


@contextlib.contextmanager
def served_pipes(root: Path | None) -> Iterator[PipeDirectories | None]:
    """Listen in one directory and leave the other without a daemon; nothing where no root is given."""
    if root is None:
        yield None
        return
    served, empty = root / "pipe", root / "pipe-without-daemon"
    for directory in (served, empty):
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o755)
    path = served / CONTROL
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen(64)
        yield PipeDirectories(str(served), str(empty))
    path.unlink(missing_ok=True)
