"""NVIDIA's own libcudart, every minor version of the package index, on the software device and behind a proxy.

The libraries (1 to 4 MB each) are kept in ~/.cache/gputax/cudart; without them and without a network the tests are
skipped.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.native.proxies import PROGRAMS, Nursery

FATBIN = Path(__file__).parents[4] / "native" / "tests" / "runtime" / "program.fatbin"
CACHE = Path.home() / ".cache" / "gputax" / "cudart"
MINORS = (*(f"12.{minor}" for minor in (0, 1, 2, 3, 4, 5, 6, 8, 9)), *(f"13.{minor}" for minor in range(5)))
DOWNLOAD_S = 60
QUOTA_MB = 512
INITIALISATION_ERROR, NOT_FOUND = 3, 500


def libcudart(minor: str) -> Path:
    """Return the library of a minor version, from the cache or the package index."""
    folder = CACHE / minor
    found = sorted(folder.glob("libcudart.so.*"))
    if found:
        return found[0]
    folder.mkdir(parents=True, exist_ok=True)
    package = "nvidia-cuda-runtime-cu12" if minor.startswith("12") else "nvidia-cuda-runtime"
    words = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
    try:
        subprocess.run(
            [*words, "--dest", str(folder), f"{package}=={minor}.*"],
            check=True, capture_output=True, text=True, timeout=DOWNLOAD_S,
        )  # fmt: skip
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"{package} {minor} is not here and cannot be downloaded: {error}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        (name,) = [each for each in packed.namelist() if Path(each).name.startswith("libcudart.so.")]
        target = folder / Path(name).name
        target.write_bytes(packed.read(name))
    wheel.unlink()
    return target


def run(nursery: Nursery, environment: dict[str, str], minor: str) -> dict[str, Any]:
    output = nursery.run(PROGRAMS / "runtime.py", environment, str(libcudart(minor)), str(FATBIN))
    document: dict[str, Any] = json.loads(output.splitlines()[-1])
    return document


@pytest.mark.parametrize("minor", MINORS)
def test_a_runtime_program_gives_right_answers(nursery: Nursery, minor: str) -> None:
    asked_for = {"GPUTAX_CUDA_RUNTIME": "1"}
    direct = run(nursery, nursery.direct() | asked_for, minor)
    proxy = nursery.proxy("--memory-mb", str(QUOTA_MB))
    behind = run(nursery, proxy.environment() | asked_for, minor)
    major, number = map(int, minor.split("."))
    for seen in (direct, behind):
        assert seen["version"] // 10 == (major * 1000 + number * 10) // 10
        assert seen["count"] == 1
        assert "gputax software device" in seen["name"]
        assert seen["runtime"] == {"asked_for": True, "self_tests_answered": 3}
    assert behind["total"] == QUOTA_MB << 20


@pytest.mark.parametrize("word", [None, "", "0", "yes"])
def test_without_the_operators_word_it_is_refused_by_its_first_call(nursery: Nursery, word: str | None) -> None:
    given = {} if word is None else {"GPUTAX_CUDA_RUNTIME": word}
    for environment in (nursery.direct(), nursery.proxy().environment()):
        assert run(nursery, environment | given, MINORS[-1]) == {"refused": NOT_FOUND}
