"""`gputax exec` leaves a program's own behaviour alone; `gputax proxy` starts and shows the proxy of this node."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Gputax = Callable[..., subprocess.CompletedProcess[str]]
SOFTWARE = ("--device", "software")
PROGRAM = """
from cuda.bindings import driver as cuda
def ok(result):
    assert int(result[0]) == 0, result
    return result[1] if len(result) == 2 else None
ok(cuda.cuInit(0))
device = ok(cuda.cuDeviceGet(0))
context = ok(cuda.cuDevicePrimaryCtxRetain(device))
ok(cuda.cuCtxSetCurrent(context))
data = bytes(range(256))
back = bytearray(256)
import ctypes
pointer = ok(cuda.cuMemAlloc(256))
ok(cuda.cuMemcpyHtoD(pointer, data, 256))
ok(cuda.cuMemcpyDtoH(ctypes.addressof(ctypes.c_char.from_buffer(back)), pointer, 256))
assert bytes(back) == data
print(ok(cuda.cuDeviceGetName(128, device)).split(b"\\0")[0].decode())
"""


def gputax_exec(*words: str, environment: str = "bare+proxy", **more: Any) -> subprocess.CompletedProcess[str]:
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [sys.executable, "-m", "gputax", "exec", "--env", environment, *SOFTWARE, "--", *words],
        capture_output=True, text=True, timeout=60, **more,
    )  # fmt: skip
    return done


@pytest.mark.parametrize("environment", ["bare", "bare+proxy"])
def test_a_program_of_the_users_runs_on_the_device(environment: str) -> None:
    done = gputax_exec(sys.executable, "-c", PROGRAM, environment=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "gputax software device\n"
    assert done.stderr == ""


@pytest.mark.parametrize("environment", ["bare", "bare+proxy"])
def test_exit_code_stdin_stdout_and_stderr_are_the_programs_own(environment: str) -> None:
    done = gputax_exec("sh", "-c", "cat; echo --debug >&2; exit 42", environment=environment, input="a\nb\0c")
    assert (done.returncode, done.stdout, done.stderr) == (42, "a\nb\0c", "--debug\n")
    done = gputax_exec("echo", "--debug", "--env", "--help", environment=environment)
    assert done.stdout == "--debug --env --help\n", "what stands behind -- is not ours to read"


def test_a_program_that_a_signal_ended_is_seen_to_have_ended_so() -> None:
    assert gputax_exec("sh", "-c", "kill -SEGV $$").returncode == -signal.SIGSEGV
    assert gputax_exec("sh", "-c", "kill -KILL $$").returncode == -signal.SIGKILL


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_reach_the_program_which_decides(signum: signal.Signals, tmp_path: Path) -> None:
    script = f"trap 'echo got it; exit 7' {signum.name[3:]}; echo ready; while :; do sleep 0.05; done"
    process = subprocess.Popen(
        [sys.executable, "-m", "gputax", "exec", "--env", "bare+proxy", *SOFTWARE, "--", "sh", "-c", script],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signum)
    out, errors = process.communicate(timeout=30)
    assert (process.returncode, out, errors) == (7, "got it\n", "")
    assert list(tmp_path.iterdir()) == [], "the proxy ended with it"


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    done = gputax_exec("no-such-program")
    assert done.returncode == 127
    assert "no-such-program: command not found" in done.stderr
    (tmp_path / "text").write_text("x")
    assert gputax_exec(str(tmp_path / "text")).returncode == 126


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--env", "bear", "--", "true"], "did you mean 'bare'?"),
        (["--device", "cpu", "--", "true"], "unknown device 'cpu'"),
        (["--env", "bare"], "Missing argument"),
        (["--libcuda", "/nowhere", "--", "true"], "no such library"),
    ],
)
def test_mistakes(gputax: Gputax, words: list[str], complaint: str) -> None:
    done = gputax("exec", *words)
    assert done.returncode == 2
    assert complaint in done.stderr


@pytest.fixture
def proxy(gputax: Gputax, tmp_path: Path) -> Iterator[Path]:
    socket = tmp_path / "p/proxy.sock"
    done = gputax("proxy", "start", "--socket", str(socket), *SOFTWARE, "--memory-mb", "64", GPUTAX_PROXY_SPIN="never")
    assert done.returncode == 0, done.stderr
    assert f"export GPUTAX_PROXY_SOCKET={socket}" in done.stdout
    assert "export LD_LIBRARY_PATH=" in done.stdout
    pid = int(done.stdout.split("kill ")[1].split()[0])
    try:
        yield socket
    finally:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 10
        while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not socket.exists()


def test_status_shows_what_it_serves(gputax: Gputax, proxy: Path) -> None:
    done = gputax("proxy", "status", "--socket", str(proxy))
    assert done.returncode == 0, done.stderr
    assert "gputax software device" in done.stdout
    assert "0 tenants connected" in done.stdout
    done = gputax("proxy", "status", "--json", GPUTAX_PROXY_SOCKET=str(proxy))
    document = json.loads(done.stdout)
    assert document["tenants"] == []
    assert document["wait_policy"] == "sleep", "as the variable said"
    done = gputax("proxy", "status", "--prometheus", "--socket", str(proxy))
    assert done.stdout.startswith("# ")
    assert "gputax_proxy" in done.stdout


def test_a_running_proxy_is_used_and_its_quota_holds(gputax: Gputax, proxy: Path, tmp_path: Path) -> None:
    suite = tmp_path / "small.toml"
    suite.write_text("[micro]\nduration_s = 0.05\nmin_samples = 100\nmax_duration_s = 0.2\npilot_s = 0.05\n")
    words = ("run", "--env", "bare+proxy", *SOFTWARE, "--suite", str(suite))
    done = gputax(*words, "--workload", "micro:launch", "--out", "m", GPUTAX_PROXY_SOCKET=str(proxy))
    assert done.returncode == 0, done.stderr + done.stdout
    done = gputax(*words, "--workload", "micro:copy-in-100MB", "--out", "n", GPUTAX_PROXY_SOCKET=str(proxy))
    assert done.returncode == 4
    assert "CUDA_ERROR_OUT_OF_MEMORY" in done.stdout
    ended = json.loads(gputax("proxy", "status", "--json", "--socket", str(proxy)).stdout)["ended_tenants"]
    assert len(ended) == 2


def test_a_second_proxy_on_the_same_socket_is_refused(gputax: Gputax, proxy: Path) -> None:
    done = gputax("proxy", "start", "--socket", str(proxy), *SOFTWARE)
    assert done.returncode == 3
    assert "serves this socket already" in done.stderr


def test_no_proxy_says_how_to_start_one(gputax: Gputax, tmp_path: Path) -> None:
    done = gputax("proxy", "status", "--socket", str(tmp_path / "none"))
    assert done.returncode == 3
    assert "gputax proxy start" in done.stderr
    done = gputax("exec", *SOFTWARE, "--", "true", GPUTAX_PROXY_SOCKET=str(tmp_path / "none"))
    assert done.returncode == 3


def test_a_backend_that_is_no_driver_is_told(gputax: Gputax, tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("no such library")
    done = gputax("proxy", "start", "--socket", str(tmp_path / "s"), "--backend", "libcuda.so.1")
    assert done.returncode == 3
    assert "did not start" in done.stderr


def test_ctrl_c_on_a_terminal_reaches_the_program_once() -> None:
    script = "trap 'echo interrupted' INT; echo ready; sleep 1; sleep 0.5; exit 5"
    pid, terminal = pty.fork()
    if pid == 0:
        words = [sys.executable, "-m", "gputax", "exec", "--env", "bare+proxy", *SOFTWARE, "--", "sh", "-c", script]
        os.execv(sys.executable, words)
    seen = b""
    with contextlib.suppress(OSError):  # the terminal is gone when the program is
        while data := os.read(terminal, 1024):
            if b"ready" in data:
                os.write(terminal, b"\x03")
            seen += data
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    assert seen.count(b"interrupted") == 1
