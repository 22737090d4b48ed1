"""Stream capture, host functions, per-thread default streams, cooperative launches: the same direct and proxied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parents[2] / "programs"
CASES = {"capture.py": 9, "cooperative.py": 5}


@pytest.mark.parametrize("transport", ["shm", "unix-socket"])
@pytest.mark.parametrize("program", CASES)
def test_the_answers_are_the_same_direct_and_proxied(nursery: Any, program: str, transport: str) -> None:
    proxy = nursery.proxy()
    expected = nursery.run(PROGRAMS / program, nursery.direct())
    assert len(expected.splitlines()) == CASES[program]
    assert nursery.run(PROGRAMS / program, proxy.environment(transport)).splitlines() == expected.splitlines()
    proxy.wait_for(lambda status: not status["tenants"] and status["totals"]["memory_bytes"] == 0)


def test_a_captured_graph_is_one_message_a_launch(nursery: Any) -> None:
    proxy = nursery.proxy()
    program = """
import gpu
from gpu import *
from cuda.bindings import driver as cu
import numpy as np
gpu.begin()
there = to_device(np.zeros(1000, np.uint32))
stream = ok(cu.cuStreamCreate(1))
before = describe()["calls"]
ok(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode(0)))
for at in range(100):
    ok(cu.cuMemsetD32Async(int(there) + 4 * at, at, 1, stream))
graph = ok(cu.cuStreamEndCapture(stream))
exec_ = ok(cu.cuGraphInstantiate(graph, 0))
for _ in range(10):
    ok(cu.cuGraphLaunch(exec_, stream))
ok(cu.cuStreamSynchronize(stream))
after = describe()["calls"]
sent = {name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name, 0)}
assert sent.pop("gputaxWaitPolicy") == 1
once = {"cuGraphInstantiateWithFlags": 1, "cuStreamSynchronize": 1, "cuStreamGetFlags": 1}
assert sent == once | {"cuGraphLaunch": 10}, sent
assert from_device(there, np.zeros(1000, np.uint32))[:100].tolist() == list(range(100))
"""
    nursery.run(program, proxy.environment())


def test_the_usual_suite_passes_on_per_thread_default_streams(nursery: Any) -> None:
    """cuda-bindings asks for the per-thread forms of every call when this variable is set."""
    proxy = nursery.proxy()
    own = {"CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM": "1"}
    expected = nursery.run(PROGRAMS / "suite.py", nursery.direct())
    assert nursery.run(PROGRAMS / "suite.py", nursery.direct() | own) == expected
    assert nursery.run(PROGRAMS / "suite.py", proxy.environment() | own) == expected


def test_a_child_has_nothing_of_its_parents_captures_and_functions(nursery: Any) -> None:
    program = """
import ctypes, os, threading
import gpu
from gpu import *
from cuda.bindings import driver as cu
import numpy as np
gpu.begin()
library = ctypes.CDLL("libcuda.so.1")
stream, own = ok(cu.cuStreamCreate(1)), cu.CUstream(2)
event = ok(cu.cuEventCreate(0))
there = to_device(np.zeros(16, np.uint32))
ok(cu.cuMemsetD32Async(there, 1, 16, own))
gate = threading.Event()
call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: gate.wait(20))
assert library.cuLaunchHostFunc(ctypes.c_void_p(int(stream)), call, None) == 0
second = ok(cu.cuStreamCreate(1))
ok(cu.cuStreamBeginCapture(second, cu.CUstreamCaptureMode(0)))
ok(cu.cuEventRecord(event, second))
child = os.fork()
if child == 0:
    gpu.begin()
    there = to_device(np.zeros(16, np.uint32))  # the parent's capture forbids nothing here
    ok(cu.cuMemsetD32Async(there, 7, 16, own))
    ok(cu.cuStreamSynchronize(own))
    called = []
    again = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(called.append)
    assert library.cuLaunchHostFunc(ctypes.c_void_p(2), again, ctypes.c_void_p(5)) == 0
    ok(cu.cuCtxSynchronize())
    os._exit(0 if called == [5] and (from_device(there, np.zeros(16, np.uint32)) == 7).all() else 1)
assert os.waitpid(child, 0)[1] == 0
gate.set()
ok(cu.cuStreamEndCapture(second))
ok(cu.cuStreamSynchronize(stream))
"""
    proxy = nursery.proxy()
    nursery.run(program, proxy.environment())
    proxy.wait_for(lambda status: not status["tenants"] and status["totals"]["memory_bytes"] == 0)
