"""Two processes that need the same model file build it once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_two_processes_build_it_once(tmp_path: Path) -> None:
    code = (
        "from gputax.worker.workloads import load_workload\n"
        "from gputax.worker.workloads.weights import ensure\n"
        "print(ensure(load_workload('resnet50'), 'fp16').notes)"
    )
    variables = {**os.environ, "GPUTAX_MODELS": str(tmp_path / "models")}
    words = [sys.executable, "-c", code]
    started = [subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    notes = [process.communicate(timeout=60)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert sum("built with seed" in note for note in notes) == 1
