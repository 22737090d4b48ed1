"""Shared parts of the native tests: builds that are kept, and Python programs that run on a libcuda of ours.

GPUTAX_NATIVE_BUILD=FOLDER runs the proxy's tests on another build. If that one has sanitizers, Python needs
LD_PRELOAD="$(gcc -print-file-name=libasan.so)" ASAN_OPTIONS=detect_leaks=0.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.native.proxies import Nursery

NATIVE = Path(__file__).parents[2] / "native"
PROGRAMS = Path(__file__).parent / "programs"

BUILDS = {"": "build", "address,undefined": "build/sanitized", "thread": "build/thread"}  # by sanitizers

Program = Callable[..., subprocess.CompletedProcess[str]]


def make(*targets: str, sanitize: str = "") -> Path:
    """Bring a build up to date by `make -C native`, one process at a time; its output is the failure's message."""
    build = BUILDS[sanitize]
    (NATIVE / build).mkdir(parents=True, exist_ok=True)
    command = ["make", "-C", str(NATIVE), "-j2", f"BUILD={build}", f"SANITIZE={sanitize}"]
    with (NATIVE / build / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run([*command, *targets], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(done.args)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return NATIVE / build


@pytest.fixture(scope="session")
def native_make() -> Callable[..., Path]:
    """`make` for tests that need more, or less, than the whole of a build."""
    return make


@pytest.fixture(scope="session")
def native_build() -> Path:
    """The folder with all native parts, built by make."""
    return make()


@pytest.fixture(scope="session")
def sanitized_build() -> Path:
    """The same with AddressSanitizer and UndefinedBehaviorSanitizer."""
    return make(sanitize="address,undefined")


def run_program(libcuda: Path, program: str, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run Python text (or a file of programs/) in a process of its own, on the libcuda.so.1 in this folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPUTAX_")}
    environment |= {"LD_LIBRARY_PATH": str(libcuda), "PYTHONPATH": str(PROGRAMS), **settings}
    start = [str(PROGRAMS / program)] if program.endswith(".py") else ["-c", program]
    return subprocess.run(
        [sys.executable, *start, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="session")
def on_software(native_build: Path) -> Program:
    """Run a program on the software device; it must end well."""

    def run(program: str, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        done = run_program(native_build / "software", program, *arguments, **settings)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture
def nursery(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Nursery]:
    given = os.environ.get("GPUTAX_NATIVE_BUILD")
    made = Nursery(tmp_path, Path(given) if given else request.getfixturevalue("native_build"))
    yield made
    made.end()


@pytest.fixture
def sanitized(tmp_path: Path, sanitized_build: Path) -> Iterator[Nursery]:
    """Everything with AddressSanitizer and UndefinedBehaviorSanitizer: proxy, backend, and libvgpu inside of Python."""
    found = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    # Python itself leaks on purpose; the proxy's leaks are looked for, at its end.
    programs = {"LD_PRELOAD": found.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0"}
    made = Nursery(tmp_path, sanitized_build, programs)
    yield made
    made.end()
