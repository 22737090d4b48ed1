"""The proxy's log is read on terminals and by collectors: no tenant writes control characters or lines into it."""

from __future__ import annotations

import contextlib
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
