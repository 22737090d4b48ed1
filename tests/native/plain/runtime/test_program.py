"""A program that nvcc built, with the runtime inside of it, on the software device and behind a proxy.

nvcc (about 150 MB) is not downloaded for a test: `python native/tests/runtime/build.py FOLDER` does so once.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.native.proxies import Nursery

BUILD = Path(__file__).parents[4] / "native" / "tests" / "runtime" / "build.py"
TOOLKIT = Path.home() / ".cache" / "gputax" / "cuda" / "toolkit"

pytestmark = pytest.mark.skipif(not (TOOLKIT / "done").exists(), reason=f"no nvcc in {TOOLKIT}")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    subprocess.run([sys.executable, str(BUILD), str(folder), "--cudart", "static"], check=True, timeout=300)
    return folder / "program-static"


@pytest.mark.parametrize("behind", ["device", "proxy"])
def test_it_passes_where_asked_for_and_is_refused_otherwise(nursery: Nursery, program: Path, behind: str) -> None:
    environment = nursery.direct() if behind == "device" else nursery.proxy().environment()
    asked_for = environment | {"GPUTAX_CUDA_RUNTIME": "1"}
    done = subprocess.run([program], env=asked_for, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "PASS"
    done = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stdout == "FAILED cudaGetDeviceCount(&count): named symbol not found\n"
