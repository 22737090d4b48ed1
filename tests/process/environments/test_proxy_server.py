"""The proxy's process and its status socket, each played by a few lines."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from gputax.environments import proxy as proxy_server
from gputax.environments.proxy import ProxyOptions, own_proxy
from gputax.errors import PreflightError


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A build directory whose proxy is a shell script."""
    monkeypatch.setenv("GPUTAX_NATIVE", str(tmp_path))
    monkeypatch.setattr(proxy_server, "READY_TIMEOUT_S", 2.0)
    script = tmp_path / "gputax-proxy"
    script.touch()
    script.chmod(stat.S_IRWXU)
    return script


def test_a_proxy_serves_while_it_is_needed_and_leaves_nothing(scripted: Path) -> None:
    scripted.write_text('#!/bin/sh\ntrap "exit 0" TERM\necho "{\\"ready\\": true}"\nwhile :; do sleep 0.05; done\n')
    with own_proxy(ProxyOptions(Path("/b")), {"PATH": "/usr/bin:/bin"}) as address:
        directory = address.socket.parent
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert not directory.exists()


def test_one_that_does_not_obey_is_ended_all_the_same(scripted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_server, "END_TIMEOUT_S", 0.3)
    scripted.write_text('#!/bin/sh\ntrap "" TERM\necho "{\\"ready\\": true}"\nwhile :; do sleep 0.05; done\n')
    with own_proxy(ProxyOptions(Path("/b")), {"PATH": "/usr/bin:/bin"}):
        pass


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo no device >&2; exit 3", "no device"),
        ("echo garbage", "garbage"),
        ("echo '{\"ready\": false}'", "false"),
        ("exec sleep 60", "no output"),
    ],
)
def test_one_that_does_not_start_is_reported_with_its_output(scripted: Path, script: str, words: str) -> None:
    scripted.write_text(f"#!/bin/sh\n{script}\n")
    with (
        pytest.raises(PreflightError, match=f"the GPU proxy did not start: .*{words}"),
        own_proxy(ProxyOptions(Path("/b")), {"PATH": "/usr/bin:/bin"}),
    ):
        pass
