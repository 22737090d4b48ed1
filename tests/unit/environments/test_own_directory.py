"""A temporary directory goes with its process, whatever ended that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gputax.environments.process import OWNER, own_directory


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_it_is_below_the_temporary_directory_and_only_ours(place: Path) -> None:
    with own_directory("test") as directory:
        assert directory.parent == place
        assert directory.stat().st_mode & 0o777 == 0o700
        (directory / "left").write_text("behind")
    assert list(place.iterdir()) == []


def test_directories_of_others_stay(place: Path) -> None:
    (place / "gputax-notes").mkdir()
    (place / "other").mkdir()
    (place / "other" / OWNER).touch()
    with own_directory("test"):
        pass
    assert sorted(path.name for path in place.iterdir()) == ["gputax-notes", "other"]


def test_another_users_is_left_alone(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "gputax-test-1").mkdir()
    (place / "gputax-test-1" / OWNER).touch()
    theirs = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: theirs)
    with own_directory("test"):
        pass
    assert (place / "gputax-test-1").is_dir()
