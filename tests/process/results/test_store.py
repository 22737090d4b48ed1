from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gputax.errors import PreflightError
from gputax.results.files import probe_directory


def test_a_full_disk_is_noticed_before_anything_is_measured(tmp_path: Path) -> None:
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], capture_output=True)
    if mount.returncode:
        pytest.skip(f"cannot mount a small disk here: {mount.stderr.decode().strip()}")
    try:
        with pytest.raises(PreflightError, match="the disk is full"):
            probe_directory(tmp_path / "results")
        assert not (tmp_path / "results" / ".probe").exists()
    finally:
        subprocess.run(["umount", tmp_path], check=True)
