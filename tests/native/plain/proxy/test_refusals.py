"""What libvgpu and the proxy do not do is said plainly: no false success, no crash, whatever a client sends."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import subprocess
from typing import Any

import pytest

from tests.native.hostile import POSTED, Hostile, read_wire_facts


def test_the_cuda_runtime_is_refused_cleanly(nursery: Any) -> None:
    proxy = nursery.proxy()
    program = """
from cuda.bindings import runtime
import gpu
for _ in range(2):
    result = runtime.cudaGetDeviceCount()
    assert int(result[0]) != 0, result
    print(result[0].name)
gpu.begin()  # the driver API goes on working in the same process
"""
    output = nursery.run(program, proxy.environment())
    assert len(output.splitlines()) == 2


def test_what_is_not_implemented_is_not_found_and_forms_follow_the_version(nursery: Any) -> None:
    proxy = nursery.proxy()
    program = """
import ctypes
library = ctypes.CDLL("libcuda.so.1")
def ask(name, version, flags=0):
    found, status = ctypes.c_void_p(), ctypes.c_int(-1)
    asked = (name, ctypes.byref(found), version, ctypes.c_uint64(flags))
    result = library.cuGetProcAddress_v2(*asked, ctypes.byref(status))
    old = ctypes.c_void_p()
    as_in_cuda_11 = library.cuGetProcAddress(name, ctypes.byref(old), version, ctypes.c_uint64(flags))
    assert as_in_cuda_11 == (500 if result == 0 and not found.value else result)
    assert old.value == found.value
    return result, status.value, found.value
def address(name):
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
for name in (b"cuStreamBeginCaptureToGraph", b"cuTexObjectCreate", b"cuMemAlloc_v2", b"", b"x" * 10000):
    assert ask(name, 13000) == (0, 1, None), name
assert ask(b"cuCtxCreate", 3019) == (0, 2, None)
assert ask(b"cuCtxCreate", 3020)[2] == address("cuCtxCreate_v2")
assert ask(b"cuCtxCreate", 11040)[2] == address("cuCtxCreate_v3")
assert ask(b"cuCtxCreate", 12049)[2] == address("cuCtxCreate_v3")
assert ask(b"cuCtxCreate", 13000)[2] == address("cuCtxCreate_v4")
assert ask(b"cuGetProcAddress", 12000)[2] == address("cuGetProcAddress_v2")
assert ask(b"cuGetProcAddress", 11999)[2] == address("cuGetProcAddress")
assert ask(b"cuLaunchKernel", 13000, 2)[2] == address("cuLaunchKernel_ptsz")  # for per-thread default streams
assert ask(b"cuMemcpyHtoD", 13000, 2)[2] == address("cuMemcpyHtoD_v2_ptds")
assert ask(b"cuDeviceGet", 13000, 2)[0] == 0
assert ask(b"cuInit", 13000, 9)[0] == 1
assert ask(b"cuInit", 14000)[0] == 0  # the version of the proxy's driver is not known yet
version = ctypes.c_int()
assert library.cuDriverGetVersion(ctypes.byref(version)) == 0
assert ask(b"cuInit", version.value)[0] == 0
assert ask(b"cuInit", version.value + 1)[0] == 1
table = ctypes.c_void_p()
assert library.cuGetExportTable(ctypes.byref(table), ctypes.create_string_buffer(16)) == 500
"""
    nursery.run(program, proxy.environment())


def test_without_a_proxy_there_is_no_device_and_a_line_says_why(nursery: Any) -> None:
    environment = nursery.direct() | {"LD_LIBRARY_PATH": str(nursery.build / "vgpu")}
    program = "from cuda.bindings import driver as cu; print(int(cu.cuInit(0)[0]), int(cu.cuDeviceGetCount()[0]))"
    process = nursery.start(program, environment)
    output, errors = process.communicate(timeout=20)
    assert output == "100 3\n"  # no device; not initialised
    assert len(errors.splitlines()) == 1, errors
    assert "GPUTAX_PROXY_SOCKET is not set" in errors
    process = nursery.start(program, environment | {"GPUTAX_PROXY_SOCKET": str(nursery.folder / "none.sock")})
    output, errors = process.communicate(timeout=20)
    assert output == "802 3\n"
    assert "none.sock" in errors


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "usage:"),
        (["--backend", "x"], 2, "usage:"),
        (["--socket", "s", "--backend", "/nonexistent/libcuda.so.1"], 3, "cannot open the backend"),
        (["--socket", "s", "--backend", "libm.so.6"], 3, "is not a libcuda"),
        (["--socket", "s", "--backend", "x", "--memory-mb", "-1"], 2, "is not a number"),
        (["--socket", "s", "--backend", "x", "--spin", "often"], 2, "none of auto, always, never"),
    ],
)
def test_bad_command_lines(nursery: Any, arguments: list[str], code: int, words: str) -> None:
    command = [str(nursery.build / "gputax-proxy"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=nursery.folder, timeout=20)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr


def test_a_second_proxy_does_not_take_a_living_ones_socket(nursery: Any) -> None:
    proxy = nursery.proxy()
    backend = str(nursery.build / "software" / "libcuda.so.1")
    command = [str(nursery.build / "gputax-proxy"), "--socket", str(proxy.socket), "--backend", backend]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 1
    assert str(proxy.socket) in done.stderr
    nursery.run("import gpu; gpu.begin()", proxy.environment())


@pytest.fixture
def wire_facts(nursery: Any) -> tuple[int, dict[str, int]]:
    return read_wire_facts(nursery.build)


def test_a_client_without_checks_gets_no_foreign_byte(nursery: Any, wire_facts: tuple[int, dict[str, int]]) -> None:
    fingerprint, calls = wire_facts
    proxy = nursery.proxy("--memory-mb", "64")
    with Hostile(proxy.socket, fingerprint) as hostile:
        try_everything(hostile, calls)


def try_everything(hostile: Hostile, calls: dict[str, int]) -> None:
    def ask(name: str, *words: int) -> tuple[int, bytes]:
        hostile.send(calls[name], struct.pack(f"<{len(words)}Q", *words))
        return hostile.answer()

    status, body = ask("cuCtxCreate_v2", 0)
    assert status == 0
    context = struct.unpack("<Q", body)[0]
    status, body = ask("cuMemAlloc_v2", context, 1 << 20)
    own = struct.unpack("<Q", body)[0]
    everywhere = [0, 1, own - 1, own + (1 << 20), 1 << 63, (1 << 64) - 1, own + (1 << 20) - 1]
    for pointer in everywhere:
        for size in (2, 4096, 1 << 20, 1 << 40, (1 << 64) - 1):
            assert ask("cuMemcpyDtoH_v2", context, pointer, size)[0] == 1, (pointer, size)
            assert ask("cuMemsetD8_v2", context, pointer, size, 7)[0] == 1, (pointer, size)
            assert ask("cuMemsetD32_v2", context, pointer, size, 7)[0] == 1, (pointer, size)
            assert ask("cuMemcpyDtoD_v2", context, own, pointer, size)[0] == 1
            assert ask("cuMemcpyDtoD_v2", context, pointer, own, size)[0] == 1
            assert ask("cuMemcpyHtoD_v2", context, pointer, size)[0] == 1
        assert ask("cuMemFree_v2", context, pointer)[0] == 1
    assert ask("cuMemsetD32_v2", context, own, (1 << 62) + 1, 7)[0] == 1  # times four wraps around to 4
    assert ask("cuMemAlloc_v2", context, (1 << 64) - 1)[0] == 2
    for stale in (0, 1, context ^ 1, context + (1 << 32), context ^ 3 << 28):
        assert ask("cuCtxSynchronize", stale)[0] == 201
        assert ask("cuStreamDestroy_v2", context, stale)[0] in (400, 1) or stale <= 2
    hostile.send(calls["cuMemcpyHtoD_v2"], struct.pack("<3Q", context, own, 10), bulk=20)
    hostile.send_bulk(b"x" * 20)
    assert hostile.answer()[0] == 1  # two sizes that differ; its bulk bytes are taken all the same
    hostile.send(calls["cuModuleLoadData"], struct.pack("<2Q", context, 1 << 62), bulk=3)
    hostile.send_bulk(b"abc")
    assert hostile.answer()[0] == 200
    lying_elf = b"\x7fELF\x02\x01\x01" + b"\0" * 33 + struct.pack("<Q", 1 << 40) + b"\xff" * 16
    hostile.send(calls["cuModuleLoadData"], struct.pack("<2Q", context, len(lying_elf)), bulk=len(lying_elf))
    hostile.send_bulk(lying_elf)
    assert hostile.answer()[0] == 200
    hostile.send(calls["cuModuleGetFunction"], struct.pack("<2Q", context, context) + b"no end")
    assert hostile.answer()[0] == 1
    assert ask("cuCtxSynchronize", context)[0] == 0


@pytest.mark.parametrize(
    "message",
    [
        {"call": 4096, "body": b""},
        {"call": 0xFFFFFFFF, "body": b""},
        {"call": 3, "body": b"", "claimed": 8192},
        {"call": 3, "body": b"x" * 8192},
        {"call": 3, "body": b"", "claimed": 0xFFFFFFFF - 64},
        {"call": 10, "body": b"xyz"},
    ],
)
def test_a_malformed_message_ends_its_sender_alone(
    nursery: Any, wire_facts: tuple[int, dict[str, int]], message: dict[str, Any]
) -> None:
    proxy = nursery.proxy()
    with Hostile(proxy.socket, wire_facts[0]) as hostile:
        hostile.send(**message)
        hostile.socket.shutdown(socket.SHUT_WR)
        with pytest.raises(OSError):  # noqa: PT011 - closed or reset, as the moment wants
            hostile.answer()
    proxy.wait_for(lambda status: not status["tenants"])
    nursery.run("import gpu; gpu.begin()", proxy.environment())


@pytest.mark.parametrize("seed", range(4))
def test_random_calls_never_end_the_proxy(nursery: Any, wire_facts: tuple[int, dict[str, int]], seed: int) -> None:
    fingerprint, calls = wire_facts
    proxy = nursery.proxy("--memory-mb", "32")
    dice = random.Random(seed)
    numbers = [0, 1, 2, 4096, 1 << 20, 1 << 32, 1 << 63, (1 << 64) - 1]
    for _ in range(60):
        with Hostile(proxy.socket, fingerprint) as hostile, contextlib.suppress(OSError, AssertionError):
            for _ in range(40):
                call = dice.choice([*calls.values(), 500])
                words = [dice.choice(numbers) for _ in range(dice.randrange(8))]
                body = struct.pack(f"<{len(words)}Q", *words) + dice.randbytes(dice.choice([0, 0, 4, 100]))
                bulk = dice.choice([0, 0, 0, 16, 1 << 40])
                hostile.send(call, body, bulk=bulk, flags=dice.choice([0, POSTED, 0xFFFFFFFF]))
                if bulk == 16:
                    hostile.send_bulk(dice.randbytes(dice.choice([1, 16, 17])))
                if dice.random() < 0.3:
                    hostile.socket.settimeout(0.02)
                    with contextlib.suppress(TimeoutError):
                        status, body = hostile.answer()
                        if status == 0 and len(body) >= 8:
                            numbers.append(struct.unpack_from("<Q", body)[0])
        assert proxy.process.poll() is None
    proxy.wait_for(lambda status: not status["tenants"] and status["totals"]["memory_bytes"] == 0)
    nursery.run("import gpu; gpu.begin()", proxy.environment())
    assert proxy.stop() == 0
