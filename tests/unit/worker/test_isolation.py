"""The probes find what is there and nothing else, tried on real processes, real memory and the software device."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputax.errors import WorkerError
from gputax.worker import isolation as isolation
from gputax.worker.isolation import HostWalls, memory_limit

SECRET = b"0123456789abcdef0123456789abcdef"


def test_the_owner_finds_its_own_secret() -> None:
    walls = HostWalls()
    assert walls.check(SECRET) == {"there": False}
    walls.hold(SECRET)
    assert walls.check(SECRET) == {"there": True}
    walls.drop()
    assert walls.check(SECRET) == {"there": False}


def cgroup(root: Path, version: int, limits: dict[str, str]) -> None:
    (root / "proc/self").mkdir(parents=True)
    name = "memory.max" if version == 2 else "memory.limit_in_bytes"
    (root / "proc/self/cgroup").write_text("0::/a/b\n" if version == 2 else "4:memory:/a/b\n")
    kind = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,memory"
    (root / "proc/self/mountinfo").write_text(f"1 1 0:1 / /sys/fs/cgroup rw - {kind}\n")
    for level, text in limits.items():
        (root / "sys/fs/cgroup" / level).mkdir(parents=True, exist_ok=True)
        (root / "sys/fs/cgroup" / level / name).write_text(text + "\n")


@pytest.mark.parametrize("version", [1, 2])
def test_the_tightest_memory_limit_is_the_one_that_holds(tmp_path: Path, version: int) -> None:
    none = "9223372036854771712" if version == 1 else "max"
    cgroup(tmp_path, version, {"a/b": none, "a": "1000000", ".": none})
    limit, source = memory_limit(tmp_path)
    assert limit == 1_000_000
    assert "/cgroup/a/memory." in source


def test_without_a_limit_there_is_none(tmp_path: Path) -> None:
    cgroup(tmp_path, 2, {"a/b": "max"})
    assert memory_limit(tmp_path) == (None, "")


def test_an_unknown_probe_is_refused() -> None:
    with pytest.raises(WorkerError, match="unknown isolation probe 'open'"):
        isolation.probe({"probe": "open"})
