"""The coordinator's side of the protocol, played against workers that die, hang, babble and flood."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from typing import Any

import pytest

from gputax.environments.connection import WorkerConnection
from gputax.environments.environment import Described, Evidence
from gputax.errors import EngineError, WorkerError

PREAMBLE = """
import json, os, signal, sys, time
def receive(): return json.loads(sys.stdin.readline())
def send(**message): print(json.dumps(message), flush=True)
"""


class Scripted:
    """An environment whose worker is a few lines of Python."""

    name = "scripted"

    def __init__(self, script: str) -> None:
        self._script = PREAMBLE + textwrap.dedent(script)

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", self._script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def evidence(self, described: Described) -> Evidence:
        return Evidence()


def call(script: str, stall_timeout_s: float = 10.0) -> dict[str, Any]:
    with WorkerConnection(Scripted(script)) as connection:
        return connection.call("measure", stall_timeout_s=stall_timeout_s)


def failure(script: str, stall_timeout_s: float = 10.0) -> WorkerError:
    connection = WorkerConnection(Scripted(script))
    with pytest.raises(WorkerError) as raised:
        connection.call("measure", stall_timeout_s=stall_timeout_s)
    connection.end()
    assert connection.ended, "no process may be left behind"
    return raised.value


def test_passes_the_result_on() -> None:
    assert call("request = receive(); send(id=request['id'], result={'op': request['op']})") == {"op": "measure"}


def test_passes_events_on_in_order() -> None:
    seen: list[Any] = []
    script = "receive()\nfor n in range(3): send(id=1, event={'done': n})\nsend(id=1, result={})"
    with WorkerConnection(Scripted(script)) as connection:
        connection.call("measure", stall_timeout_s=10, on_event=lambda event: seen.append(event["done"]))
    assert seen == [0, 1, 2]


def test_an_error_comes_back_as_the_same_kind() -> None:
    with pytest.raises(EngineError, match="it broke"):
        call("receive(); send(id=1, error={'kind': 'EngineError', 'what': 'it broke'})")


def test_a_greeting_before_the_protocol_is_tolerated() -> None:
    assert call("print('Welcome to host 7'); print(); receive(); send(id=1, result={'ok': 1})") == {"ok": 1}


def test_an_answer_to_another_request_is_not_taken_for_ours() -> None:
    assert call("receive(); send(id=99, result={'old': 1}); send(id=1, result={'new': 1})") == {"new": 1}


def test_a_worker_that_ends_at_once() -> None:
    error = failure("sys.stderr.write('no such library'); sys.exit(7)")
    assert "exit code 7" in error.what
    assert "no such library" in error.next_step


def test_a_worker_killed_in_the_middle() -> None:
    error = failure("receive(); send(id=1, event={'done': 1}); os.kill(os.getpid(), signal.SIGKILL)")
    assert "signal 9" in error.what
    assert "out of memory?" in error.what


def test_a_worker_that_says_nothing_is_ended() -> None:
    started = time.monotonic()
    error = failure("receive(); time.sleep(60)", stall_timeout_s=0.5)
    assert "no progress" in error.what
    assert time.monotonic() - started < 10


def test_a_worker_whose_count_stands_still_is_ended() -> None:
    script = "receive()\nwhile True: send(id=1, event={'done': 5, 'total': 9}); time.sleep(0.1)"
    assert "no progress" in failure(script, stall_timeout_s=0.6).what


def test_a_slow_worker_that_does_move_is_left_alone() -> None:
    # The first call is answered at once: so the limit of the second is not on the start of Python.
    script = """
    receive(); send(id=1, result={})
    receive()
    for n in range(8): send(id=2, event={'done': n}); time.sleep(0.2)
    send(id=2, result={'ok': 1})
    """
    with WorkerConnection(Scripted(script)) as connection:
        connection.call("describe", stall_timeout_s=10.0)
        assert connection.call("measure", stall_timeout_s=1.0) == {"ok": 1}


def test_garbage_without_end_is_refused_with_a_sample() -> None:
    error = failure("receive()\nwhile True: print('Segment fault lottery ' * 10)")
    assert "Segment fault lottery" in error.what


def test_binary_garbage_is_refused() -> None:
    assert "unexpected output" in failure("receive()\nwhile True: os.write(1, os.urandom(4096) + b'\\n')").what


def test_a_flood_without_newline_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputax.environments.connection.MAX_LINE_BYTES", 1 << 20)
    assert "one line" in failure("receive()\nwhile True: os.write(1, b'x' * 65536)").what


def test_a_flood_on_stderr_does_not_block_the_worker() -> None:
    script = "receive(); os.write(2, b'e' * 5_000_000); send(id=1, result={'ok': 1})"
    assert call(script) == {"ok": 1}


def test_another_protocol_version_is_refused() -> None:
    connection = WorkerConnection(Scripted("receive(); send(id=1, result={'protocol': 99})"))
    with pytest.raises(WorkerError, match="protocol 99"):
        connection.describe()
    connection.end()


def test_close_ends_even_a_worker_that_ignores_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputax.environments.connection.CLOSE_TIMEOUT_S", 0.3)
    connection = WorkerConnection(Scripted("signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"))
    connection.close()
    assert connection.ended
