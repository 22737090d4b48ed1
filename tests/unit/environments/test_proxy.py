"""The proxy's process and its status socket, each played by a few lines."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputax.environments.driver import LIBVGPU
from gputax.environments.environment import Described
from gputax.environments.proxy import ProxyAddress, ProxyOptions, running_proxy, spin_of, transport_of, used_proxy
from gputax.errors import PreflightError, UsageError
from gputax.plan.driver import DriverChoice


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[list[bytes]]:
    """A status socket at `s.status` that gives the bytes in the list, in turn."""
    answers: list[bytes] = []
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "s.status"))
    server.listen()

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            with client:
                client.recv(100)
                client.sendall(answers.pop(0))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield answers
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(timeout=5)


def test_status_and_prometheus_are_read_to_the_end(answering: list[bytes], tmp_path: Path) -> None:
    address = ProxyAddress(tmp_path / "s")
    document = {"pid": 1, "tenants": [{"id": number} for number in range(20_000)]}
    answering += [json.dumps(document).encode(), b"HTTP/1.0 200 OK\r\nA: b\r\n\r\n# TYPE x counter\nx 1\n"]
    assert address.status() == document
    assert address.prometheus() == "# TYPE x counter\nx 1\n"


@pytest.mark.parametrize("answer", [b"", b"garbage", b"[1]"])
def test_an_answer_that_is_none_is_an_error_that_says_how_to_start_one(
    answering: list[bytes], tmp_path: Path, answer: bytes
) -> None:
    answering.append(answer)
    with pytest.raises(PreflightError, match="no GPU proxy answers") as raised:
        ProxyAddress(tmp_path / "s").status()
    assert "gputax proxy start" in raised.value.next_step


def test_a_running_proxy_must_answer(answering: list[bytes], tmp_path: Path) -> None:
    assert running_proxy({}) is None
    answering.append(b"{}")
    assert running_proxy({"GPUTAX_PROXY_SOCKET": str(tmp_path / "s")}) == ProxyAddress(tmp_path / "s")
    with pytest.raises(PreflightError):
        running_proxy({"GPUTAX_PROXY_SOCKET": str(tmp_path / "none")})


@pytest.mark.parametrize("same", [True, False])
def test_the_process_of_a_tenant_is_compared_only_in_the_same_pid_namespace(
    answering: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    """In another pod the proxy knows the worker by another process id."""
    (tmp_path / "vgpu").mkdir()
    libvgpu = tmp_path / LIBVGPU
    libvgpu.touch()
    monkeypatch.setenv("GPUTAX_NATIVE", str(tmp_path))
    monkeypatch.setenv("GPUTAX_PROXY_SOCKET", str(tmp_path / "s"))
    status = {"backend": "/b", "device": "d", "tenants": [{"id": 3, "pid": 7, "calls": {"cuInit": 1}}]}
    answering += [json.dumps(status).encode()] * 2
    vgpu = {"tenant": 3, "transport": "shm", "calls": {"cuInit": 1}, "backend": "/b", "device": "d"}
    driver = {"library": str(libvgpu.resolve()), "pid": 4711, "vgpu": vgpu}
    with used_proxy(DriverChoice(), same_pid_namespace=same) as proxy:
        evidence = proxy.evidence(Described({"driver": driver}))
    assert evidence.active is not same
    assert ["process 7" in reason for reason in evidence.reasons] == [True] * same


def test_the_variables() -> None:
    assert transport_of({}) == "shm"
    assert transport_of({"GPUTAX_PROXY_TRANSPORT": "unix-socket"}) == "unix-socket"
    assert spin_of({}) == "auto"
    assert spin_of({"GPUTAX_PROXY_SPIN": "always"}) == "always"
    with pytest.raises(UsageError, match="unknown value of GPUTAX_PROXY_SPIN 'allways'"):
        spin_of({"GPUTAX_PROXY_SPIN": "allways"})


def test_limits_are_passed_on_and_what_is_left_out_stays_the_proxys_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUTAX_NATIVE", str(tmp_path))
    program = tmp_path / "gputax-proxy"
    program.touch()
    words = ProxyOptions(Path("/b"), memory_mb=64, spin="never").words(Path("/s"))
    assert words == [str(program), "--socket", "/s", "--backend", "/b", "--memory-mb", "64", "--spin", "never"]
