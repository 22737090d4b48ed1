"""The worker's directory for temporary files: its own, and gone with it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from gputax.environments.process import worker_scratch
from gputax.errors import PreflightError
from gputax.worker.scratch import VARIABLE, remove_scratch


def test_the_directory_goes_with_all_that_was_left_in_it() -> None:
    with worker_scratch() as variables:
        scratch = Path(variables["TMPDIR"])
        (scratch / "gputax-loadgen-x").mkdir()
        (scratch / "gputax-loadgen-x/log").write_text("cut short")
    assert not scratch.exists()


def test_compiled_kernels_outlive_a_worker() -> None:
    with worker_scratch() as variables:
        assert not variables["TORCHINDUCTOR_CACHE_DIR"].startswith(variables["TMPDIR"])


def test_the_worker_removes_only_what_was_made_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    remove_scratch()
    assert tmp_path.is_dir(), "TMPDIR may be anybody's"
    with worker_scratch() as variables:
        monkeypatch.setenv(VARIABLE, variables[VARIABLE])
        remove_scratch()
        assert not Path(variables[VARIABLE]).exists()


def test_no_place_for_temporary_files_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(prefix: str, dir: Path) -> str:
        raise OSError(28, os.strerror(28), "/tmp/x")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(PreflightError, match="No space left") as raised, worker_scratch():
        pass
    assert "TMPDIR" in raised.value.next_step
