"""Shared parts of the native tests: one build per session, and Python programs that run on a libcuda of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"
PROGRAMS = Path(__file__).parent / "programs"

Program = Callable[..., subprocess.CompletedProcess[str]]


def make(*arguments: str) -> None:
    """Run `make -C native` with these arguments; its output is the failure's message."""
    done = subprocess.run(["make", "-C", str(NATIVE), "-j2", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"make {' '.join(arguments)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


@pytest.fixture(scope="session")
def native_make() -> Callable[..., None]:
    """`make` for tests that build something of their own."""
    return make


@pytest.fixture(scope="session")
def native_build() -> Path:
    """The folder with all native parts, built by make."""
    make()
    return NATIVE / "build"


@pytest.fixture(scope="session")
def sanitized_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with AddressSanitizer and UndefinedBehaviorSanitizer."""
    build = tmp_path_factory.mktemp("sanitized")
    make("SANITIZE=address,undefined", f"BUILD={build}")
    return build


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
