"""The sizes that the driver tells, in a process that has loaded it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOFTWARE = Path(__file__).resolve().parents[3] / "native/build/software"


SCRIPT = """
import ctypes, json
from gputax.worker.probes.nvidia import cuda_device
before = cuda_device()
library = ctypes.CDLL("libcuda.so.1")
uninitialised = cuda_device()
library.cuInit(0)
print(json.dumps([before, uninitialised, cuda_device()]))
"""


@pytest.mark.skipif(not (SOFTWARE / "libcuda.so.1").exists(), reason="the software device is not built: make native")
def test_the_driver_s_own_sizes_are_told_where_it_is_loaded() -> None:
    environ = {**os.environ, "LD_LIBRARY_PATH": str(SOFTWARE), "GPUTAX_SOFT_MEMORY_MB": "146"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environ, capture_output=True, text=True, timeout=60, check=True
    )
    before, uninitialised, loaded = json.loads(done.stdout)
    assert before is None
    assert uninitialised is None
    assert loaded["name"].startswith("gputax software device")
    assert (loaded["memory_total_mb"], loaded["sm_count"]) == (146, 1)
