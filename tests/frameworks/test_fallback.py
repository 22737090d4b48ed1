"""ONNX Runtime goes on with the CPU when one symbol of the driver is missing; gputax refuses and names the symbol."""

from __future__ import annotations

import ctypes
from pathlib import Path

from gputax.environments.driver import SOFTWARE_DEVICE, native_part
from tests.builders.elf import without_symbol
from tests.conftest import Gputax
from tests.frameworks.conftest import NULL

SYMBOL = "cuTensorMapEncodeTiled"


def test_a_driver_without_one_symbol_is_refused_and_the_symbol_named(gputax: Gputax, tmp_path: Path) -> None:
    lacking = tmp_path / "lacking" / "libcuda.so.1"
    lacking.parent.mkdir()
    lacking.write_bytes(without_symbol(native_part(SOFTWARE_DEVICE).read_bytes(), SYMBOL.encode()))
    driver = ctypes.CDLL(str(lacking))
    assert hasattr(driver, "cuInit")
    assert not hasattr(driver, SYMBOL)
    words = ("--engine", "onnx", "--scenario", "single-stream", *NULL, "--libcuda", str(lacking))
    done = gputax("run", *words, "--out", "o", timeout=300)
    said = " ".join(done.stderr.split())
    assert done.returncode == 3, said
    assert "after loading the session runs on CPUExecutionProvider" in said
    assert f"undefined symbol: {SYMBOL}" in said
    assert not (tmp_path / "o").exists()
