"""Shared parts of the tests: the command line as a user types it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Gputax = Callable[..., subprocess.CompletedProcess[str]]

# A shell gives its background jobs an ignored Ctrl-C, and children inherit it: no interrupt of a test would arrive.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Small enough for a test, large enough that every scenario of LoadGen really runs.
TINY_SUITE = """
scenarios = ["offline", "server", "single-stream"]
sample_count = 16
[offline]
pilot_s = 0.2
batch = [1, 4]
duration_s = 0.3
[server]
pilot_s = 0.2
batch = [4]
min_samples = 100
percentile = 0.90
[single-stream]
pilot_s = 0.2
min_samples = 100
[multi-stream]
pilot_s = 0.2
min_samples = 64
percentile = 0.90
[saturate]
pilot_s = 0.2
batch = [2]
duration_s = 0.3
"""


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
        return subprocess.run(
            [sys.executable, "-m", "gputax", *words],
            cwd=cwd or tmp_path,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, **environment},
        )

    return call
