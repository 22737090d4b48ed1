"""Sessions between dom0 and a guest with both ends on one machine: stdio, signals, exit codes, a guest that lies."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Make = Callable[..., Path]
BROKEN = 255


@pytest.fixture(scope="session")
def session_programs(native_make: Make) -> Path:
    """The test programs of sessions."""
    return native_make("session-tests") / "tests"


def run(programs: Path, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [programs / "session_local", *words], input=given, capture_output=True, timeout=60, check=False
    )


def ask(programs: Path, folder: Path, *items: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    (folder / "request").write_bytes(b"".join(item.encode() + b"\0" for item in items))
    return run(programs, "--request", str(folder / "request"), given=given)


def begin(programs: Path, *words: str) -> subprocess.Popen[bytes]:
    started = subprocess.Popen(
        [programs / "session_local", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert started.stdout is not None
    assert started.stdout.readline() == b"ready\n"
    return started


def test_frames_requests_and_places_are_read_or_refused(session_programs: Path) -> None:
    done = subprocess.run(
        [session_programs / "session_frames"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


def test_output_errors_and_exit_code_come_apart(session_programs: Path) -> None:
    done = run(session_programs, "/bin/sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.stdout, done.stderr, done.returncode) == (b"out\n", b"err\n", 7)


def test_megabytes_of_input_come_back_whole(session_programs: Path) -> None:
    given = os.urandom(3_000_001)
    done = run(session_programs, "/bin/cat", given=given)
    assert done.stdout == given
    assert done.returncode == 0


def test_a_program_that_reads_no_input_still_ends(session_programs: Path) -> None:
    done = run(session_programs, "/bin/sh", "-c", "exec <&-; echo done", given=bytes(2_000_000))
    assert (done.stdout, done.returncode) == (b"done\n", 0)


def test_a_program_that_is_not_there_is_127(session_programs: Path) -> None:
    done = run(session_programs, "/bin/not-there")
    assert done.returncode == 127
    assert b"/bin/not-there" in done.stderr


def test_a_request_sets_folder_and_environment(session_programs: Path, tmp_path: Path) -> None:
    done = ask(
        session_programs, tmp_path, "a/bin/sh", "a-c", "apwd; env | grep -v ^PWD", f"d{tmp_path}", "eONE=two three"
    )
    assert done.stdout.decode().splitlines()[0] == str(tmp_path)
    assert "ONE=two three" in done.stdout.decode().splitlines()
    assert b"HOME=" not in done.stdout


def test_a_malformed_request_runs_nothing(session_programs: Path, tmp_path: Path) -> None:
    done = ask(session_programs, tmp_path, "a/bin/echo", "d relative")
    assert (done.stdout, done.returncode) == (b"", 126)
    assert b"malformed" in done.stderr


def test_a_terminal_is_one_for_the_program(session_programs: Path, tmp_path: Path) -> None:
    done = ask(session_programs, tmp_path, "t", "a/bin/sh", "a-c", "atty; read x; echo got $x", given=b"hello\n")
    lines = done.stdout.replace(b"\r", b"").splitlines()
    assert any(line.startswith(b"/dev/pts/") for line in lines)
    assert lines[-1] == b"got hello"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGUSR1, 42)])
def test_a_signal_reaches_the_program(session_programs: Path, number: int, code: int) -> None:
    started = begin(session_programs, "/bin/sh", "-c", "trap 'exit 42' USR1; echo ready; while :; do sleep 0.05; done")
    started.send_signal(number)
    started.communicate(timeout=30)
    assert started.returncode == code


def test_the_program_ends_with_a_killed_carrier(session_programs: Path, tmp_path: Path) -> None:
    mark = tmp_path / "alive"
    started = begin(
        session_programs,
        "/bin/sh",
        "-c",
        f"echo x > {mark}; echo ready; while :; do echo x >> {mark}; sleep 0.05; done",
    )
    started.kill()
    started.communicate(timeout=30)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        before = mark.stat().st_size
        time.sleep(1)
        if mark.stat().st_size == before:
            return
    pytest.fail("the program in the guest goes on")


@pytest.mark.parametrize("how", ["counter", "taken", "length", "huge", "kind", "exit", "input", "short", "leave"])
def test_a_guest_that_breaks_the_rules_ends_its_session(session_programs: Path, how: str) -> None:
    done = run(session_programs, "--hostile", how)
    assert done.returncode == BROKEN
    assert b"xen-session: the guest" in done.stderr
    assert done.stdout == (b"last words\n" if how == "leave" else b"")
