"""Graph messages of a client that keeps no rule, against a proxy with sanitizers: refused, and the proxy goes on."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.native.hostile import POSTED, Hostile, read_wire_facts

PROGRAMS = Path(__file__).parents[1] / "programs"
KERNELS = Path(__file__).parents[3] / "native" / "kernels"
KERNEL, COPY, FILL, HOST, EMPTY = 0, 1, 2, 3, 5
BAD_VALUE, BAD_HANDLE, BAD_CONTEXT, NO_MEMORY = 1, 400, 201, 2
FAR = [0, 1, 1 << 32, 1 << 62, 1 << 63, (1 << 64) - 1]


def step(kind: int, *words: int, parameters: bytes = b"", claimed: int | None = None) -> bytes:
    size = len(parameters) if claimed is None else claimed
    body = struct.pack("<II5Q", kind, size, *words, *[0] * (5 - len(words)))
    return body + parameters + b"\0" * (-len(parameters) % 8)


def kernel(function: int, parameters: bytes, attributes: bytes = b"", count: int | None = None, **more: int) -> bytes:
    ones, number = 1 | 1 << 32, len(attributes) // 16 if count is None else count
    body = step(KERNEL, function, ones, ones, ones, number << 32, parameters=parameters, **more)
    return body + attributes


def attribute(number: int, *values: int) -> bytes:
    return struct.pack("<4I", number, *values, *[0] * (3 - len(values)))


class Tenant:
    """A hostile client with a context, memory, a module and a kernel of its own."""

    def __init__(self, proxy: Any, build: Path) -> None:
        fingerprint, self.calls = read_wire_facts(build)
        self.wire = Hostile(proxy.socket, fingerprint)
        self.context = self.word("cuCtxCreate_v2", 0)
        self.memory = self.word("cuMemAlloc_v2", self.context, 4096)
        text = (KERNELS / "vector.ptx").read_bytes() + b"\0"
        self.module = self.word("cuModuleLoadData", self.context, len(text), bulk=text)
        self.kernel = self.word("cuModuleGetFunction", self.context, self.module, tail=b"vector_add\0")
        self.values = struct.pack("<QQQI", *[self.memory] * 3, 16)

    def ask(self, name: str, *words: int, **more: bytes) -> int:
        return self.wire.ask(self.calls[name], *words, **more)[0]

    def word(self, name: str, *words: int, **more: bytes) -> int:
        return self.wire.ask_word(self.calls[name], *words, **more)

    def instantiate(self, steps: bytes, count: int, claimed: int | None = None) -> tuple[int, int]:
        size = len(steps) if claimed is None else claimed
        status, body = self.wire.ask(self.calls["cuGraphInstantiateWithFlags"], self.context, size, count, bulk=steps)
        return status, struct.unpack("<Q", body)[0] if status == 0 else 0

    def launch(self, graph: int, stream: int = 0, first: int = 0, count: int = 2) -> int:
        return self.ask("cuGraphLaunch", self.context, graph, stream, first | count << 32)

    def change(self, name: str, graph: int, place: int, body: bytes, claimed: int | None = None) -> int:
        size = len(body) if claimed is None else claimed
        return self.ask(name, self.context, graph, place | size << 32, tail=body)


@pytest.fixture
def proxy(sanitized: Any) -> Iterator[Any]:
    running = sanitized.proxy("--memory-mb", "8")
    yield running
    assert running.process.poll() is None, running.process.stderr.read()
    running.wait_for(lambda status: not status["tenants"] and status["totals"]["memory_bytes"] == 0)
    code, said = running.stop(), running.process.stderr.read()
    assert code == 0, said
    assert not any(word in said for word in ("Sanitizer", "runtime error")), said


@pytest.mark.parametrize("program", ["graphs", "frameworks", "capture", "cooperative", "mapped"])
def test_nothing_is_reported_for_any_suite(sanitized: Any, proxy: Any, program: str) -> None:
    direct = sanitized.run(PROGRAMS / f"{program}.py", sanitized.direct())
    assert sanitized.run(PROGRAMS / f"{program}.py", proxy.environment()) == direct


def test_every_field_of_a_list_is_checked(sanitized: Any, proxy: Any) -> None:
    tenant = Tenant(proxy, sanitized.build)
    other = Tenant(proxy, sanitized.build)
    own, size = tenant.memory, 4096
    good = kernel(tenant.kernel, tenant.values)
    refused = {
        "another tenant's kernel": (kernel(other.kernel, tenant.values), BAD_HANDLE),
        "a module as a kernel": (kernel(tenant.module, tenant.values), BAD_HANDLE),
        "no parameters": (kernel(tenant.kernel, b""), BAD_HANDLE),
        "more parameters": (kernel(tenant.kernel, tenant.values + b"1234"), BAD_HANDLE),
        "parameters that are not there": (kernel(tenant.kernel, b"", claimed=28), BAD_VALUE),
        "absurd parameters": (kernel(tenant.kernel, b"", claimed=0xFFFFFFFF), BAD_VALUE),
        "attributes that are not there": (kernel(tenant.kernel, tenant.values, count=1), BAD_VALUE),
        "nine attributes": (kernel(tenant.kernel, tenant.values, attribute(8, 1) * 9), BAD_VALUE),
        "absurd attributes": (kernel(tenant.kernel, tenant.values, count=0xFFFFFFFF), BAD_VALUE),
        "another tenant's memory": (step(COPY, own, other.memory, 16), BAD_VALUE),
        "into another tenant's memory": (step(COPY, other.memory, own, 16), BAD_VALUE),
        "behind the end": (step(COPY, own, own + size - 8, 16), BAD_VALUE),
        "a fill of too much": (step(FILL, own, size // 4 + 1, 4 << 32), BAD_VALUE),
        "a fill that wraps around": (step(FILL, own, (1 << 62) + 1, 4 << 32), BAD_VALUE),
        "elements of three bytes": (step(FILL, own, 1, 3 << 32), BAD_VALUE),
        "a copy with parameters": (step(COPY, own, own, 1, parameters=b"12345678"), BAD_VALUE),
        "an unknown kind": (step(77), BAD_VALUE),
        "a host node": (step(HOST), BAD_VALUE),
    }
    refused |= {f"a copy from {far:#x}": (step(COPY, own, far, 8), BAD_VALUE) for far in FAR}
    refused |= {f"a kernel {far:#x}": (kernel(far, tenant.values), BAD_HANDLE) for far in FAR}
    found = {name: tenant.instantiate(good + body, 2)[0] for name, (body, _) in refused.items()}
    assert found == {name: code for name, (_, code) in refused.items()}
    assert tenant.instantiate(good, 2)[0] == BAD_VALUE  # fewer than it says
    assert tenant.instantiate(good + good, 1)[0] == BAD_VALUE  # more than it says
    assert tenant.instantiate(good[:-8], 1)[0] == BAD_VALUE
    assert tenant.instantiate(good[:-3], 1)[0] == BAD_VALUE
    assert tenant.instantiate(good, 1, claimed=len(good) + 8)[0] == BAD_VALUE
    assert tenant.instantiate(good, 0xFFFFFFFF)[0] == BAD_VALUE
    assert tenant.instantiate(b"", 1)[0] == BAD_VALUE
    assert tenant.instantiate(step(EMPTY) * 60000, 60000)[0] == 0
    status, graph = tenant.instantiate(good + step(EMPTY), 2)
    assert (status, tenant.launch(graph)) == (0, 0)
    for first, count in ((0, 3), (1, 2), (2, 1), (3, 0), (0xFFFFFFFF, 2), (1, 0xFFFFFFFF)):  # parts that are not there
        assert tenant.launch(graph, first=first, count=count) == BAD_VALUE, (first, count)
    assert tenant.launch(graph, first=2, count=0) == 0
    for number in (1, 7, 12, 13, 999, 0xFFFFFFFF):  # an address, an event, nothing known: not handed to the backend
        status, given = tenant.instantiate(kernel(tenant.kernel, tenant.values, attribute(number, 1, 1, 1)), 1)
        assert (status, tenant.launch(given, count=1)) == (0, BAD_VALUE), number
        assert tenant.ask("cuGraphExecDestroy", given) == 0
    for stranger in (*FAR, graph ^ 1, graph + (1 << 32), tenant.kernel, tenant.context):
        assert tenant.launch(stranger) == BAD_HANDLE
        assert tenant.ask("cuGraphExecDestroy", stranger) == BAD_HANDLE
    assert tenant.launch(graph, stream=12345) == BAD_HANDLE
    assert other.launch(graph) == BAD_HANDLE
    for one in (tenant, other):
        one.wire.socket.close()


def test_every_field_of_an_update_is_checked_and_a_refused_one_changes_nothing(sanitized: Any, proxy: Any) -> None:
    tenant, other = Tenant(proxy, sanitized.build), Tenant(proxy, sanitized.build)
    own = tenant.memory
    good = kernel(tenant.kernel, tenant.values)
    status, graph = tenant.instantiate(good + step(FILL, own, 8, 7 | 4 << 32) + step(COPY, own + 64, own, 32), 3)
    assert status == 0
    set_kernel, set_fill = "cuGraphExecKernelNodeSetParams_v2", "cuGraphExecMemsetNodeSetParams"
    set_copy = "cuGraphExecMemcpyNodeSetParams"
    exact = good
    assert tenant.change(set_kernel, graph, 0, exact) == 0
    for name, place, body, claimed in [
        (set_kernel, 3, exact, None),
        (set_kernel, 0xFFFFFFFF, exact, None),
        (set_kernel, 1, exact, None),
        (set_fill, 0, step(FILL, own, 1, 1 << 32), None),
        (set_kernel, 0, exact[:-1], None),
        (set_kernel, 0, exact + b"x", None),
        (set_kernel, 0, exact, 0),
        (set_kernel, 0, exact[:40], None),
        (set_kernel, 0, b"", None),
        (set_copy, 2, step(COPY, own, other.memory, 8), None),
        (set_copy, 2, step(COPY, own, own, 4097), None),
        (set_fill, 1, step(FILL, own, 1 << 63, 4 << 32), None),
        (set_fill, 1, step(FILL, own, 1, 5 << 32), None),
    ]:
        assert tenant.change(name, graph, place, body, claimed) == BAD_VALUE, (name, place)
    wrong = kernel(other.kernel, tenant.values)[: len(exact)]
    assert tenant.change(set_kernel, graph, 0, wrong) == BAD_HANDLE
    assert other.change(set_kernel, graph, 0, exact) == BAD_HANDLE
    assert tenant.launch(graph, count=3) == 0
    data = tenant.wire.ask(tenant.calls["cuMemcpyDtoH_v2"], tenant.context, own, 96)[1]
    assert struct.unpack("<24I", data)[:8] == struct.unpack("<24I", data)[16:] == (7,) * 8
    # What is gone when it runs is refused then: the kernel with its module, the memory with its end.
    second = tenant.word("cuCtxCreate_v2", 0)
    assert tenant.ask("cuGraphLaunch", second, graph, 0, 2 << 32) == BAD_HANDLE
    assert tenant.ask("cuModuleUnload", tenant.context, tenant.module) == 0
    assert tenant.launch(graph) == BAD_HANDLE
    assert tenant.ask("cuCtxDestroy_v2", tenant.context) == 0
    assert tenant.launch(graph) == BAD_CONTEXT
    for one in (tenant, other):
        one.wire.socket.close()


@pytest.mark.parametrize("seed", range(2))
def test_random_lists_never_end_the_proxy(sanitized: Any, proxy: Any, seed: int) -> None:
    dice = random.Random(seed)
    tenant = Tenant(proxy, sanitized.build)
    numbers = [*FAR, tenant.memory, tenant.memory + 4000, tenant.kernel, tenant.context, 16]
    graphs = [0]
    for _ in range(400):
        bodies = [
            dice.choice(
                [
                    kernel(dice.choice(numbers), tenant.values),
                    step(dice.choice([COPY, FILL, EMPTY, HOST, 9]), *(dice.choice(numbers) for _ in range(5))),
                    kernel(tenant.kernel, dice.randbytes(28)),
                    step(EMPTY),
                ]
            )
            for _ in range(dice.randrange(1, 5))
        ]
        if dice.random() < 0.3:
            bodies[0] = dice.randbytes(dice.choice([8, 48, 56]))
        status, graph = tenant.instantiate(b"".join(bodies), len(bodies) + dice.choice([0, 0, 0, 1]))
        if status == 0:
            graphs.append(graph)
        body = dice.choice(bodies)
        name = dice.choice(["cuGraphExecKernelNodeSetParams_v2", "cuGraphExecMemcpyNodeSetParams"])
        tenant.change(name, dice.choice(graphs), dice.randrange(4), body)
        flags = dice.choice([0, POSTED])
        words = struct.pack(
            "<4Q", tenant.context, dice.choice(graphs), 0, dice.choice([1, 2, *FAR]) << 32 & (1 << 64) - 1
        )
        tenant.wire.send(tenant.calls["cuGraphLaunch"], words, flags=flags)
        if not flags:
            tenant.wire.answer()
        if tenant.ask("cuCtxSynchronize", tenant.context) >= 700:  # a kernel with random pointers faulted
            tenant.wire.socket.close()
            tenant, graphs = Tenant(proxy, sanitized.build), [0]
    tenant.wire.socket.close()
