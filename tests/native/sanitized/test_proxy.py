"""The suite and the worst moments under AddressSanitizer and UndefinedBehaviorSanitizer: no report, no leak."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

SUITE = Path(__file__).parents[1] / "programs" / "suite.py"
ENDLESS = """
import gpu
from gpu import *
from cuda.bindings import driver as cu
import numpy as np
gpu.begin()
array = np.ones(8 << 20, np.uint8)
pointer = to_device(array)
print("ready", flush=True)
while True:
    ok(cu.cuMemcpyHtoD(pointer, array.ctypes.data, array.nbytes))
    from_device(pointer, array)
"""


@pytest.mark.parametrize("transport", ["shm", "unix-socket"])
def test_nothing_is_reported_for_the_suite_a_killed_tenant_and_an_orderly_end(sanitized: Any, transport: str) -> None:
    proxy = sanitized.proxy("--memory-mb", "256")
    direct = sanitized.run(SUITE, sanitized.direct(), "3")
    assert sanitized.run(SUITE, proxy.environment(transport), "3") == direct
    killed = sanitized.start(ENDLESS, proxy.environment(transport))
    assert killed.stdout.readline() == "ready\n"
    time.sleep(0.1)
    killed.kill()
    proxy.wait_for(lambda status: not status["tenants"])
    living = sanitized.start(ENDLESS, proxy.environment(transport))
    assert living.stdout.readline() == "ready\n"
    with ExitStack() as readers:
        for _ in range(3):  # they say nothing: the proxy waits for them when it ends
            readers.enter_context(socket.socket(socket.AF_UNIX)).connect(f"{proxy.socket}.status")
        code, said = proxy.stop(), proxy.process.stderr.read()
    assert code == 0, said  # a leak or an error that a sanitizer found is another code
    assert not any(word in said for word in ("Sanitizer", "runtime error")), said
    assert "CUDA_ERROR_SYSTEM_NOT_READY" in living.communicate(timeout=30)[1]
