"""The command line as a process and as a function, and a suite that is done in seconds."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from gputax.cli.main import main

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


def run_gputax(*words: str, cwd: Path, timeout: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "gputax", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **environment},
    )


def call_gputax(*words: str) -> subprocess.CompletedProcess[str]:
    """Call the command line in this process, with what it writes kept as a pipe would."""
    kept = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(each, encoding="utf-8", write_through=True) for each in kept)
    with redirect_stdout(out), redirect_stderr(err):
        code = main(words)
    stdout, stderr = (each.getvalue().decode() for each in kept)
    return subprocess.CompletedProcess(["gputax", *words], code, stdout, stderr)
