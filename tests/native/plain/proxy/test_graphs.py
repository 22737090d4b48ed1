"""Graphs: the same on the device and behind the proxy, one message a launch, charged and limited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

GRAPHS = Path(__file__).parents[2] / "programs" / "graphs.py"
FILLS = """
import sys
import gpu
from gpu import *
from cuda.bindings import driver as cu
import numpy as np
context = gpu.begin()
there = to_device(np.zeros(1000, np.uint32))
def fills(count):
    graph = ok(cu.cuGraphCreate(0))
    before = None
    for at in range(count):
        node = cu.CUDA_MEMSET_NODE_PARAMS()
        node.dst, node.value, node.elementSize, node.width, node.height = int(there) + 4 * (at % 1000), at, 4, 1, 1
        before = ok(cu.cuGraphAddMemsetNode(graph, [before] if before else None, 1 if before else 0, node, context))
    return graph
"""


@pytest.mark.parametrize("transport", ["shm", "unix-socket"])
def test_graphs_are_the_same_direct_and_proxied(nursery: Any, transport: str) -> None:
    proxy = nursery.proxy()
    expected = nursery.run(GRAPHS, nursery.direct())
    assert len(expected.splitlines()) == 8
    assert nursery.run(GRAPHS, proxy.environment(transport)).splitlines() == expected.splitlines()
    proxy.wait_for(lambda status: not status["tenants"] and status["totals"]["memory_bytes"] == 0)


def test_a_launch_is_one_message_and_an_update_sends_only_what_changed(nursery: Any) -> None:
    proxy = nursery.proxy()
    program = (
        FILLS
        + """
graph = fills(500)
exec_ = ok(cu.cuGraphInstantiate(graph, 0))
node = ok(cu.cuGraphGetNodes(graph, 500))[0][3]
before = describe()["calls"]
changed = cu.CUDA_MEMSET_NODE_PARAMS()
changed.dst, changed.value, changed.elementSize, changed.width, changed.height = int(there) + 12, 77, 4, 1, 1
for _ in range(10):
    ok(cu.cuGraphExecMemsetNodeSetParams(exec_, node, changed, context))
    ok(cu.cuGraphLaunch(exec_, 0))
after = describe()["calls"]
sent = {name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name, 0)}
assert sent == {"cuGraphLaunch": 10, "cuGraphExecMemsetNodeSetParams": 1, "gputaxWaitPolicy": 1}, sent
found = from_device(there, np.zeros(1000, np.uint32))
assert found[:500].tolist() == [77 if at == 3 else at for at in range(500)]
"""
    )
    nursery.run(program, proxy.environment())
    ended = proxy.wait_for(lambda status: len(status["ended_tenants"]) == 1)["ended_tenants"][0]
    assert ended["replayed_steps"] == 5000
    assert ended["posted_calls"] == 12  # ten launches, one update, the first copy in
    assert ended["calls"]["cuGraphInstantiateWithFlags"] == 1


def test_a_graph_counts_for_the_memory_quota_until_it_ends(nursery: Any) -> None:
    proxy = nursery.proxy("--memory-mb", "2")
    program = (
        FILLS
        + """
before = ok(cu.cuMemGetInfo())[0]
graph = fills(4000)
execs = [ok(cu.cuGraphInstantiate(graph, 0))]
cost = before - ok(cu.cuMemGetInfo())[0]
assert 4000 * 48 <= cost <= 4000 * 60, cost
while True:
    answer = cu.cuGraphInstantiate(graph, 0)
    if int(answer[0]):
        break
    execs.append(answer[1])
assert error(answer) == "CUDA_ERROR_OUT_OF_MEMORY" and 4 < len(execs) < 11, (answer, len(execs))
ok(cu.cuGraphLaunch(execs[-1], 0))
for exec_ in execs:
    ok(cu.cuGraphExecDestroy(exec_))
assert ok(cu.cuMemGetInfo())[0] == before
ok(cu.cuGraphInstantiate(graph, 0))  # left behind
"""
    )
    nursery.run(program, proxy.environment())
    proxy.wait_for(lambda status: not status["tenants"] and status["totals"]["memory_bytes"] == 0)


def test_every_kernel_of_a_graph_counts_for_the_launch_quota(nursery: Any) -> None:
    proxy = nursery.proxy("--launches-per-s", "50")
    program = """
import ctypes, time
import gpu
from gpu import *
from cuda.bindings import driver as cu
import numpy as np
gpu.begin()
add = function(module("vector"), "vector_add")
there = to_device(np.ones(16, np.float32))
graph = ok(cu.cuGraphCreate(0))
node = cu.CUDA_KERNEL_NODE_PARAMS()
node.func = add
node.gridDimX = node.gridDimY = node.gridDimZ = node.blockDimX = node.blockDimY = node.blockDimZ = 1
node.kernelParams = ((there, there, there, 16), (None, None, None, ctypes.c_int))
for _ in range(30):
    ok(cu.cuGraphAddKernelNode(graph, None, 0, node))
exec_ = ok(cu.cuGraphInstantiate(graph, 0))
start = time.monotonic()
for _ in range(2):
    ok(cu.cuGraphLaunch(exec_, 0))
ok(cu.cuCtxSynchronize())
assert time.monotonic() - start > 60 / 50 - 0.2  # a burst of a tenth of a second is free
"""
    nursery.run(program, proxy.environment())


def test_a_child_does_not_have_its_parents_graphs(nursery: Any) -> None:
    proxy = nursery.proxy()
    program = (
        FILLS
        + """
import os
exec_ = ok(cu.cuGraphInstantiate(fills(3), 0))
child = os.fork()
if child == 0:
    gpu.begin()
    found = error(cu.cuGraphLaunch(exec_, 0))
    os._exit(0 if found == "CUDA_ERROR_INVALID_VALUE" else 1)
assert os.waitpid(child, 0)[1] == 0
ok(cu.cuGraphLaunch(exec_, 0))
assert from_device(there, np.zeros(1000, np.uint32))[:3].tolist() == [0, 1, 2]
"""
    )
    nursery.run(program, proxy.environment())


def test_a_tenant_that_dies_ends_its_replay(nursery: Any) -> None:
    """A graph of four thousand fills of 256 MB takes minutes; its owner's memory is free again long before."""
    proxy = nursery.proxy(device={"GPUTAX_SOFT_MEMORY_MB": "300"})
    program = (
        FILLS
        + """
there = ok(cu.cuMemAlloc(256 << 20))
graph = ok(cu.cuGraphCreate(0))
node = cu.CUDA_MEMSET_NODE_PARAMS()
node.dst, node.value, node.elementSize, node.width, node.height = there, 1, 1, 256 << 20, 1
for _ in range(4000):
    ok(cu.cuGraphAddMemsetNode(graph, None, 0, node, context))
exec_ = ok(cu.cuGraphInstantiate(graph, 0))
ok(cu.cuGraphLaunch(exec_, 0))
print("launched", flush=True)
ok(cu.cuCtxSynchronize())
"""
    )
    tenant = nursery.start(program, proxy.environment())
    assert tenant.stdout.readline() == "launched\n"
    proxy.wait_for(lambda status: status["totals"]["replayed_steps"] > 2)
    tenant.kill()
    ended = proxy.wait_for(lambda status: not status["tenants"], seconds=20)
    assert ended["totals"]["replayed_steps"] < 4000
    assert ended["totals"]["memory_bytes"] == 0
