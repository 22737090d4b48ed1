"""The transports: one conformance suite for each, and waiting; sanitized/test_wire.py runs it with sanitizers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Make = Callable[..., Path]
TRANSPORTS = ("shm", "unix-socket", "xen")


def run(program: Path, *arguments: str, timeout: float = 300) -> str:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def wire_programs(native_make: Make) -> Path:
    """The transports' test programs."""
    return native_make("wire-tests") / "tests"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_transport_conforms(wire_programs: Path, transport: str) -> None:
    lines = run(wire_programs / "wire_conformance", transport).splitlines()
    assert lines[-1].endswith("cases, 0 failed")
    assert len(lines) > 20, "cases are missing"


def test_a_check_that_fails_at_the_other_end_ends_its_case_at_once(wire_programs: Path) -> None:
    done = subprocess.run(
        [wire_programs / "wire_conformance", "--failing"], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("not ok") and "a check failed at the other end" in line for line in lines)
    assert done.stderr.count("on purpose") == 2


def test_no_wake_up_is_lost(wire_programs: Path) -> None:
    seen = json.loads(run(wire_programs / "wait_stress", "2"))
    assert seen["sleeps"] > 100
    assert seen["wakes"] > 100


def test_spinning_follows_habits_and_the_budget(wire_programs: Path) -> None:
    assert run(wire_programs / "wait_policy") == "ok\n"


def test_latency_is_printed_for_every_transport(native_build: Path) -> None:
    seen = json.loads(
        run(native_build / "tests" / "wire_latency", "--trips", "200", "--repeats", "3", "--bulk-mib", "2")
    )
    for transport in ("shm", "unix-socket"):
        assert seen[transport]["round_trip_p50_us"] > 0
        assert seen[transport]["to_server_gb_per_s"] > 0
        assert seen[transport]["to_client_gb_per_s"] > 0
