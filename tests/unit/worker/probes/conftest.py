"""Fake kernel trees and a fake `pynvml`: the outermost edges of the probes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.standins.nvml import nvml as nvml

PlantTree = Callable[[dict[str, str]], Path]


@pytest.fixture
def plant(tmp_path: Path) -> PlantTree:
    """Write files below a fake root directory and return the root."""

    def write(files: dict[str, str]) -> Path:
        root = tmp_path / "root"
        root.mkdir(exist_ok=True)
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return root

    return write
