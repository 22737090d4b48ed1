"""A disk of five megabytes that a test can fill."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(parent: Path) -> Iterator[Path]:
    """Mount a small disk below `parent`; skip the test where that is not allowed."""
    small = parent / "small"
    small.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", small], capture_output=True)
    if mount.returncode:
        pytest.skip(f"cannot mount a small disk here: {mount.stderr.decode().strip()}")
    try:
        yield small
    finally:
        subprocess.run(["umount", small], check=True)


def fill(path: Path) -> None:
    """Write until the disk is full to the last page."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        with contextlib.suppress(OSError):
            while os.write(descriptor, b"\0" * 4096):
                pass
    finally:
        os.close(descriptor)
    assert shutil.disk_usage(path.parent).free == 0
