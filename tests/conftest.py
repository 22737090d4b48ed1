"""The lanes of the tests and their law: a fast test starts no process and calls the command line as a function."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.standins.command import TINY_SUITE, call_gputax, run_gputax
from tests.standins.started import end_all

Gputax = Callable[..., subprocess.CompletedProcess[str]]

FAST_LANES = ("unit", "golden", "contract", "simulation")  # with smoke/, what `make test` runs

# CPython raises these audit events before it starts a process, whichever module asks for it.
# cuda-bindings asks ldconfig where the driver's library is; nothing of ours runs there.
HARMLESS = ("/sbin/ldconfig",)
STARTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.exec", "os.system")

# A shell gives its background jobs an ignored Ctrl-C, and children inherit it: no interrupt of a test would arrive.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests share their cores with each other: a disturbed machine is the rule. Tests of that rule say so themselves.
os.environ["GPUTAX_ACCEPT_DISTURBED"] = "1"

_refused: list[str] | None = None  # what the running test of a fast lane tried to start


def _refuse_to_start(event: str, arguments: tuple[object, ...]) -> None:
    if event in STARTS and _refused is not None and arguments[0] not in HARMLESS:
        _refused.append(f"{event} {arguments[:2]!r}"[:300])
        raise RuntimeError(f"a fast lane starts no process: {_refused[-1]}")


sys.addaudithook(_refuse_to_start)  # stays for good, and does nothing outside of a fast lane


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="simulate as many runs as docs/method.md publishes")


def _lane(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).parts[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global _refused
    _refused = [] if _lane(item) in FAST_LANES else None
    try:
        return (yield)
    finally:
        _refused = None


@pytest.fixture(autouse=True)
def _lane_law(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a fast test whose start of a process the product's own error handling hid; end what a slow one left."""
    yield
    end_all()
    assert not _refused, f"starts a process: it belongs into tests/process ({_refused[0]})"


@pytest.fixture
def tiny_suite(tmp_path: Path) -> str:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY_SUITE)
    return str(path)


@pytest.fixture
def gputax(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gputax:
    """Run the command in an empty directory, without a terminal: in a fast lane as a function, else as a process."""

    def call(
        *words: str, timeout: float = 120, cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        if _lane(request.node) not in FAST_LANES:
            return run_gputax(*words, cwd=cwd or tmp_path, timeout=timeout, **environment)
        with monkeypatch.context() as here:
            here.chdir(cwd or tmp_path)
            for name, value in environment.items():
                here.setenv(name, value)
            return call_gputax(*words)

    return call
