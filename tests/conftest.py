"""Shared parts of the tests: the command line as a user types it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.standins.command import TINY_SUITE, run_gputax

Gputax = Callable[..., subprocess.CompletedProcess[str]]

# A shell gives its background jobs an ignored Ctrl-C, and children inherit it: no interrupt of a test would arrive.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def tiny_suite(tmp_path: Path) -> str:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY_SUITE)
    return str(path)


@pytest.fixture
def gputax(tmp_path: Path) -> Gputax:
    """Run the command in an empty directory, without a terminal."""

    def call(
        *words: str, timeout: float = 120, cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return run_gputax(*words, cwd=cwd or tmp_path, timeout=timeout, **environment)

    return call
