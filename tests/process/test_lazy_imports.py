"""What starts often stays light: help, wrong command lines and the names of things import no heavy package."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("mlperf_loadgen", "numpy", "onnx", "onnxruntime", "pyarrow", "pydantic", "rich", "scipy")


def loaded_by(code: str) -> list[str]:
    """Return the heavy packages that this code imports in a Python of its own."""
    program = f"{code}\nimport sys\nprint('LOADED', *sorted({set(HEAVY)} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()[1:]


@pytest.mark.parametrize("words", [["--help"], ["advise", "--help"], ["advise", "results/x", "--slo", "p99=50"]])
def test_help_and_usage_errors_import_nothing_heavy(words: list[str]) -> None:
    assert loaded_by(f"from gputax.cli.main import main; main({words})") == []


def test_importing_percentiles_leaves_scipy_alone() -> None:
    assert "scipy" not in loaded_by("import gputax.stats.percentiles, gputax.stats.verdicts")


def test_describing_a_workload_needs_no_onnx() -> None:
    assert "onnx" not in loaded_by("from gputax.worker.workloads import load_workload; load_workload('bert-large')")


def test_importing_gputax_loads_no_other_module_of_ours() -> None:
    code = "import sys, gputax; print(sorted(name for name in sys.modules if name.startswith('gputax')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['gputax']"
