"""A temporary directory goes with its process, whatever ended that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gputax.environments.process import own_directory

HOLDS_ONE = """
import sys
from pathlib import Path
from gputax.environments.process import own_directory
with own_directory("test", Path(sys.argv[1])) as directory:
    print(directory, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_holds_is_not(place: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS_ONE, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout
        held = Path(other.stdout.readline().strip())
        with own_directory("test"):
            assert held.is_dir()
        other.kill()
    assert held.is_dir(), "killed: it could not remove it"
    with own_directory("test"):
        assert not held.exists()
