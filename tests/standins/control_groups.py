"""Control groups as a test sees them, without the code under test: can they be made, and which ones are there."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path("/sys/fs/cgroup")
# The file of each version that holds a group's weight, and the most that the kernel takes.
WEIGHTS = {"cpu.shares": "262144", "cpu.weight": "10000"}
ENTER = 'echo $$ > {procs} && exec "$@"'


def _cpu_controller() -> Path:
    """Return where groups with a weight are made, in either version."""
    return next((each for each in (ROOT / "cpu", ROOT / "cpu,cpuacct") if each.is_dir()), ROOT)


def may_be_made() -> bool:
    """Try a directory in the CPU controller of either version; what the product cannot do there is its own fault."""
    probe = _cpu_controller() / f"probe-of-a-test-{os.getpid()}"
    try:
        probe.mkdir()
    except OSError:
        return False
    probe.rmdir()
    return True


def named(prefix: str) -> list[Path]:
    """Return the groups of either version whose names begin so.

    Groups of others come and go: `os.walk` passes over one that vanishes under it, the `glob` of Python 3.11 raises.
    """
    return [Path(at) / name for at, names, _ in os.walk(ROOT) for name in names if name.startswith(prefix)]


@contextmanager
def weighty() -> Iterator[Path]:
    """Make a group that weighs as much as the kernel takes, so that others hardly count beside it; remove it again."""
    group = _cpu_controller() / f"weighty-of-a-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group may be made here: {error}")
    try:
        weights = [group / name for name in WEIGHTS if (group / name).exists()]
        if not weights:
            pytest.skip("control groups have no weight here")
        weights[0].write_text(WEIGHTS[weights[0].name])
        yield group
    finally:
        _remove(group)


def inside(group: Path, words: list[str]) -> list[str]:
    """Return the command that runs these words as the same process, but in the group."""
    return ["sh", "-c", ENTER.format(procs=group / "cgroup.procs"), "sh", *words]


def _remove(group: Path) -> None:
    """Remove a group; the kernel forgets its last process some milliseconds after that was waited for."""
    deadline = time.monotonic() + 5
    while True:
        try:
            group.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


needed = pytest.mark.skipif(not may_be_made(), reason="no control group may be made here: needs root")
