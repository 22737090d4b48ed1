"""The proxy's log is read on terminals and by collectors: no tenant writes control characters or lines into it."""

from __future__ import annotations

import contextlib
import os
import socket
import string
from typing import Any

import pytest

# An unknown name is quoted in the message, and a very long one with whatever stands behind it.
HOSTILE = {
    "character": ".version 8.0\n.target sm_80\n\x1b[2J\rgputax-proxy: all is well",
    "name": ".version 8.0\n.target sm_80\n.visible .entry k() { " + 60 * "a" + "\x1b]0;owned\x07\r\nforged; ret; }",
    "string": '.version 8.0\n.target sm_80\n"\x1b[31m\nforged" \x9b2J',
}
LOADER = """
import sys
import gpu
from gpu import *
from cuda.bindings import driver as cu
gpu.begin()
assert error(cu.cuModuleLoadData(bytes.fromhex(sys.argv[1]) + b"\\0")) == "CUDA_ERROR_INVALID_PTX"
"""


def log_of(proxy: Any) -> str:
    assert proxy.stop() == 0
    text: str = proxy.process.stderr.read()
    return text


@pytest.mark.parametrize("case", HOSTILE)
def test_a_module_that_is_refused_is_one_printable_line(nursery: Any, case: str) -> None:
    proxy = nursery.proxy()
    nursery.run(LOADER, proxy.environment(), HOSTILE[case].encode("latin-1").hex())
    lines = log_of(proxy).split("\n")
    assert lines[0].startswith("gputax software device: PTX line")
    assert lines[1:] == [""]
    assert set(lines[0]) <= set(string.printable) - set("\t\n\r\x0b\x0c")


def test_a_greeting_with_control_characters_is_one_printable_line(nursery: Any) -> None:
    proxy = nursery.proxy()
    for greeting in (b"\x1b[2J\r\nforged\n" * 30, b"GPUTAX\x1b\n" * 40):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(proxy.socket))
            stranger.sendall(greeting)
            stranger.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                while stranger.recv(4096):
                    pass
    lines = log_of(proxy).split("\n")
    assert len(lines) == 3
    assert all(line.startswith("gputax-proxy: tenant ") for line in lines[:2])
    assert all(line.isprintable() for line in lines)


LINES_MOST = 40  # a burst of 20, and one each second for as long as the test may take
BAD_MODULES = """
import gpu
from gpu import *
from cuda.bindings import driver as cu
gpu.begin()
for number in range(300):
    assert error(cu.cuModuleLoadData(f".version 8.0\\n.target sm_80\\nmistake{number}\\0".encode())) != "CUDA_SUCCESS"
"""


def test_a_tenant_that_is_refused_in_a_loop_does_not_fill_the_log(nursery: Any) -> None:
    """300 mistakes of one tenant, and a line of another one that is still there."""
    proxy = nursery.proxy("--identity", "process")
    for _ in range(300):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(proxy.socket))
            # After 128 starts of its workers the tenant is refused without one: the socket may be closed already.
            with contextlib.suppress(OSError):
                stranger.sendall(b"x" * 200)
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(4096):
                    pass
    greeter = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(b'y' * 200)"
    nursery.run(greeter, proxy.environment(), str(proxy.socket))
    seen = proxy.wait_for(
        lambda status: not status["tenants"] and any(each["pid"] != os.getpid() for each in status["ended_tenants"])
    )
    (last,) = (each["id"] for each in seen["ended_tenants"] if each["pid"] != os.getpid())
    lines = log_of(proxy).splitlines()
    assert 20 <= len(lines) <= LINES_MOST
    assert any(f"tenant {last} " in line for line in lines), lines[-1]


def test_modules_that_are_refused_in_a_loop_do_not_fill_the_log(nursery: Any) -> None:
    proxy = nursery.proxy()
    nursery.run(BAD_MODULES, proxy.environment())
    nursery.run(BAD_MODULES, proxy.environment())
    lines = log_of(proxy).splitlines()
    assert 20 <= len(lines) <= LINES_MOST
