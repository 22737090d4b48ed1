from __future__ import annotations

from pathlib import Path

from gputax.worker.hold import others


def test_it_sees_other_processes_and_not_itself(tmp_path: Path) -> None:
    for name in ("1", "17", "self", "meminfo"):
        (tmp_path / name).mkdir()
    assert others(tmp_path, own=1) == [17]
