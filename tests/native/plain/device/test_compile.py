"""Compiled kernels on the software device: the interpreter's bytes, and the interpreter where they cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

REPORT = """
def report():
    text = ctypes.create_string_buffer(4096)
    ctypes.CDLL("libcuda.so.1").gputax_soft_report(text, 4096)
    return json.loads(text.value)
"""
BEGIN = "import ctypes, json\nimport numpy as np\nfrom device import *\n" + REPORT


@pytest.fixture(scope="session")
def code(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of compiled kernels that the tests share."""
    folder = tmp_path_factory.mktemp("code")
    folder.chmod(0o700)
    return str(folder)


def digests(on_software: Any, **settings: str) -> dict[str, str]:
    lines = map(json.loads, on_software("kernels.py", **settings).stdout.splitlines())
    return {line["kernel"]: line["digest"] for line in lines}


def test_every_kernel_of_the_project_gives_the_interpreters_bytes(on_software: Any, code: str) -> None:
    compiled = digests(on_software, GPUTAX_SOFT_COMPILE="always", GPUTAX_SOFT_CODE=code)
    assert compiled == digests(on_software, GPUTAX_SOFT_COMPILE="never")
    assert len(list(Path(code).glob("*.so"))) >= 17
