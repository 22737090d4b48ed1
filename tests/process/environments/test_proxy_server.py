"""The proxy's process and its status socket, each played by a few lines."""

from __future__ import annotations

import stat
import time
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


@pytest.mark.parametrize("stream", [1, 2], ids=["stdout", "stderr"])
def test_one_with_many_messages_goes_on(scripted: Path, tmp_path: Path, stream: int) -> None:
    """A tenant can make a proxy write; a pipe takes 64 KiB, and a proxy that waits for a reader serves nobody."""
    scripted.write_text(
        '#!/bin/sh\ntrap "exit 0" TERM\necho "{\\"ready\\": true}"\n'
        f"head -c 1000000 /dev/zero >&{stream}\n"
        f'touch "{tmp_path}/went-on"\nwhile :; do sleep 0.05; done\n'
    )
    with own_proxy(ProxyOptions(Path("/b")), {"PATH": "/usr/bin:/bin"}):
        deadline = time.monotonic() + 10
        while not (tmp_path / "went-on").exists():
            assert time.monotonic() < deadline, "it waits for somebody to read its messages"
            time.sleep(0.02)


def test_one_with_many_messages_that_does_not_start_is_reported_with_its_last_words(scripted: Path) -> None:
    scripted.write_text("#!/bin/sh\nhead -c 1000000 /dev/zero >&2\necho no device >&2\nexit 3\n")
    with (
        pytest.raises(PreflightError, match=r"the GPU proxy did not start: .*no device") as caught,
        own_proxy(ProxyOptions(Path("/b")), {"PATH": "/usr/bin:/bin"}),
    ):
        pass
    assert len(caught.value.what) < 5000


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
