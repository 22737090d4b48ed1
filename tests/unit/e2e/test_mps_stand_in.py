"""The stand-in of the MPS control daemon: one directory in which somebody listens, one in which nobody does."""

from __future__ import annotations

import socket
from pathlib import Path

from e2e.mps_stand_in import CONTROL, served_pipes


def test_somebody_listens_in_one_directory_and_nobody_in_the_other(tmp_path: Path) -> None:
    with served_pipes(tmp_path / "mps") as pipes:
        assert pipes is not None
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(f"{pipes.served}/{CONTROL}")
        assert list(Path(pipes.empty).iterdir()) == []
    assert not (Path(pipes.served) / CONTROL).exists()


def test_without_a_root_there_are_no_pipes() -> None:
    with served_pipes(None) as pipes:
        assert pipes is None
