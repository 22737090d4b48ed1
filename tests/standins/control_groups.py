"""Whether control groups can be made here at all, found out without the code under test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path("/sys/fs/cgroup")


def may_be_made() -> bool:
    """Try a directory in the CPU controller of either version; what the product cannot do there is its own fault."""
    place = next((each for each in (ROOT / "cpu", ROOT / "cpu,cpuacct") if each.is_dir()), ROOT)
    probe = place / f"probe-of-a-test-{os.getpid()}"
    try:
        probe.mkdir()
    except OSError:
        return False
    probe.rmdir()
    return True


needed = pytest.mark.skipif(not may_be_made(), reason="no control group may be made here: needs root")
