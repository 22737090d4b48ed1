"""Neighbours that crash do so for real, in a process of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from gputax.environments.driver import SOFTWARE_DEVICE, native_part


def test_a_crash_on_the_cpu_is_a_real_one_and_leaves_no_file(tmp_path: Path) -> None:
    code = "from gputax.worker.engines.neighbour import segmentation_fault; segmentation_fault()"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True)
    assert done.returncode == -signal.SIGSEGV
    assert list(tmp_path.iterdir()) == []


CRASH_ON_THE_DEVICE = """
import ctypes, sys, time
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
from gputax.errors import EngineError
from gputax.worker.engines import neighbour_driver
real = neighbour_driver.RoundsKernel.launch
def recorded(kernel, out):
    try:
        real(kernel, out)
    except EngineError as error:
        print(error.what, flush=True)
        raise
neighbour_driver.RoundsKernel.launch = recorded
work = neighbour_driver.driver_work("crash", "software", 7, 20)
while True:
    work.run()
"""


def test_a_crash_on_the_device_is_an_illegal_access_in_the_middle_of_work() -> None:
    words = [sys.executable, "-c", CRASH_ON_THE_DEVICE, str(native_part(SOFTWARE_DEVICE))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.stdout == "cuCtxSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS\n"
    assert done.returncode == -signal.SIGKILL
