"""The lane of real frameworks: their packages are there, or every test of it is skipped with the command."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.standins.command import run_gputax

PACKAGES = ("torch", "transformers", "cupy", "pynvml")
PROVIDERS = "libonnxruntime_providers_cuda.so"
WAYS = ("bare", "bare+proxy")
# Binary images are taken only with null kernels, which compute nothing; the models' weights are real memory.
NULL = ("--device", "software", "--soft-kernels", "null", "--soft-memory-mb", "4096", "--cuda-runtime")
SUITE = """
sample_count = 4
[single-stream]
pilot_s = 0.2
min_samples = 64
"""

Command = Callable[..., subprocess.CompletedProcess[str]]


def missing() -> list[str]:
    """Return what this environment lacks of the lane's packages."""
    lacks = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    runtime = importlib.util.find_spec("onnxruntime")
    folder = Path(runtime.origin).parent / "capi" if runtime is not None and runtime.origin else Path()
    return lacks + ([] if (folder / PROVIDERS).is_file() else ["onnxruntime-gpu"])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    lacks = missing()
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.frameworks)
            if lacks:
                item.add_marker(pytest.mark.skip(reason=f"needs {', '.join(lacks)}: make test-frameworks"))


@pytest.fixture
def suite(tmp_path: Path) -> str:
    path = tmp_path / "frameworks.toml"
    path.write_text(SUITE, encoding="utf-8")
    return str(path)


@pytest.fixture
def in_environment(tmp_path: Path) -> Command:
    """Run Python text with `gputax exec` in an environment; it must end well."""

    def run(environment: str, program: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        words = ("exec", "--env", environment, "--cuda-runtime", "--device", "software", *options)
        settings = {"PYTHONDONTWRITEBYTECODE": "1", "HOME": os.environ.get("HOME", str(tmp_path)), **variables}
        done = run_gputax(*words, "--", sys.executable, "-c", program, cwd=tmp_path, timeout=600, **settings)
        assert done.returncode == 0, done.stderr + done.stdout
        return done

    return run
