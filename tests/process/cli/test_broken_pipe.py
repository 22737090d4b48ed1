"""A reader that goes away (`gputax … | head`) is not an error of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_a_table_whose_reader_is_gone_ends_with_zero_and_without_a_word(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "gputax", "models", "list"],
            stdout=writing,
            stderr=subprocess.PIPE,
            env={**os.environ, "GPUTAX_MODELS": str(tmp_path), "COLUMNS": "60"},
            timeout=60,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
