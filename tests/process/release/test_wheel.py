"""The wheel in an environment without the checkout: it measures on its own native parts, behind its own proxy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from e2e.layout import REPOSITORY
from gputax import __version__
from gputax.environments.driver import native_directory
from release.wheel import PROGRAMS, build

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the native parts are for Linux")
TIMEOUT_S = 240.0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(native_directory(), tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the `gputax` of a new environment in which only the wheel is installed.

    Its dependencies come from the environment of the tests, as a path: an editable gputax there is not found by it.
    """
    directory = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(directory / "bin/python")]
    subprocess.run([*pip, "install", "-q", "--no-deps", "--no-index", wheel], check=True)
    return directory / "bin/gputax"


def run(command: Path, words: Sequence[str], directory: Path) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("GPUTAX_NATIVE", "PYTHON"))}
    environ = {**own, "PYTHONPATH": sysconfig.get_path("purelib")}
    return subprocess.run(
        [command, *words], cwd=directory, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S
    )


def test_it_is_tagged_with_the_glibc_that_its_parts_need(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
        (metadata,) = (opened.read(name).decode() for name in names if name.endswith(".dist-info/WHEEL"))
    tag = wheel.name.removesuffix(".whl").partition("-none-")[2]
    assert tag.startswith("manylinux_2_")
    assert f"Tag: py3-none-{tag}" in metadata
    assert {f"gputax/_native/{part}" for part in (*PROGRAMS, "kernels/micro.ptx")} <= names


def test_without_native_parts_it_says_what_to_build(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "release.wheel", "--native", str(tmp_path), "--out", str(tmp_path)]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Next: make native" in done.stderr
    assert not list(tmp_path.iterdir())


def test_it_runs_without_a_checkout(installed: Path, tmp_path: Path) -> None:
    done = run(installed, ["--version"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"gputax, version {__version__}\n"
    found = run(installed, ["doctor", "--json"], tmp_path)
    native = json.loads(found.stdout)["facts"]["native"]
    assert native["missing"] == []
    assert Path(native["directory"]).is_relative_to(installed.parent.parent)


def test_it_measures_behind_its_own_proxy_on_its_own_device(installed: Path, tmp_path: Path) -> None:
    words = ["duet", "bare", "bare+proxy", "--device", "software", "--workload", "micro:launch", "--max-time", "5"]
    done = run(installed, [*words, "--accept-disturbed", "--out", "r"], tmp_path)
    # The verdict is that of a busy machine; that it was measured, and on what, is not.
    assert done.returncode in (0, 6, 7), done.stderr
    comparison = json.loads((tmp_path / "r/comparison.json").read_text())
    proven = [side["evidence"] for side in comparison["sides"]]
    assert [each["active"] for each in proven] == [True, True]
    for each in proven:
        assert Path(each["library"]).is_relative_to(installed.resolve().parent.parent), each["library"]
