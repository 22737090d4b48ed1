"""A short fuzz of transports, dispatcher, PTX loader, readers of binaries and tables; `make fuzz` is the long one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.native.plain.wire.test_wire import run

NATIVE = Path(__file__).parents[3] / "native"
FUZZED = {
    "ring": (50000, 150),
    "socket": (50000, 150),
    "calls": (20000, 1000),
    "ptx": (20000, 3000),
    "fatbin": (50000, 250),
    "cubin": (50000, 300),
    "tables": (3000, 1500),
}  # executions, edges
Make = Callable[..., Path]


@pytest.fixture(scope="session")
def fuzzers(native_make: Make) -> Path:
    return native_make(*(f"build/fuzz/{target}" for target in FUZZED)) / "fuzz"


@pytest.mark.parametrize("target", list(FUZZED))
def test_a_short_fuzz_finds_nothing(fuzzers: Path, tmp_path: Path, target: str) -> None:
    corpus = NATIVE / "fuzz" / "corpus" / target
    executions, edges = FUZZED[target]
    words = ("--executions", str(executions), "--corpus", str(corpus), "--crashes", str(tmp_path))
    seen = json.loads(run(fuzzers / target, *words))
    assert seen["target"] == target
    assert seen["crashes"] == 0
    assert seen["executions"] >= executions
    assert seen["edges"] > edges, "the corpus no longer reaches the code"
