"""Faults of a model behind the GPU proxy: the cell fails with the cause, the next cell runs, nothing is left behind."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gputax import api
from gputax.environments.driver import SOFTWARE_DEVICE, native_part
from gputax.environments.proxy import SOCKET_VARIABLE, ProxyAddress, ProxyOptions, own_proxy
from gputax.plan.cells import Cell, LoadPlan, Setup
from gputax.results.documents.run import RunRecord
from gputax.results.reading import RUN
from gputax.results.store import read_document
from tests.builders.small_models import small_classifier

SHORT = LoadPlan(duration_s=0.2, min_samples=64, pilot_s=0.1)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Models and temporary files of the test's own; whatever is left there afterwards was ours."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("GPUTAX_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield tmp_path
    assert list(temporary.iterdir()) == []


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return small_classifier(tmp_path / "small.onnx")


def cell(file: Path, scenario: str = "single-stream", load: LoadPlan = SHORT) -> Cell:
    own = api.own_model(file)
    setup = Setup(own.name, engine="tinygrad", device="software", own=own, sample_count=8, max_batch=1)
    return Cell(setup, scenario, 1, "bare+proxy", load=load)


def the_next_cell_ran(record: RunRecord) -> bool:
    """Whether the second and last cell is a valid number with its proof."""
    (benchmark,) = record.benchmarks
    return benchmark.scenario == "offline" and benchmark.valid and benchmark.evidence["active"] is True


def test_a_model_that_does_not_fit_the_quota_is_named_with_its_tensor(place: Path, small: Path) -> None:
    large = small_classifier(place / "large.onnx", hidden=4000)
    options = ProxyOptions(native_part(SOFTWARE_DEVICE), memory_mb=8)
    with own_proxy(options, os.environ) as address:
        record = api.run((cell(large), cell(small, "offline")), out=place / "o", proxy_socket=address.socket)
    (failure,) = record.failures
    assert "CUDA out of memory: the tensor product (16.0 MB) does not fit" in failure.what
    assert "gputax proxy start --memory-mb" in failure.next
    assert the_next_cell_ran(record)


def test_a_kernel_that_does_not_end_in_time_fails_with_the_limit(place: Path, small: Path) -> None:
    endless = small_classifier(place / "endless.onnx", hidden=6000)
    record = api.run((cell(endless), cell(small, "offline")), out=place / "o", soft_timeout_s=0.02)
    (failure,) = record.failures
    assert "took too long" in failure.next
    assert "GPUTAX_SOFT_TIMEOUT_S" in failure.next
    assert the_next_cell_ran(record)


# Gives the first kernel that tinygrad renders, in one process, a loop without end.
ENDLESS = """
import importlib.abc, importlib.util, pathlib, sys

MARK = pathlib.Path({mark!r})

class Hook(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "tinygrad.renderer.ptx":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            render = module.PTXRenderer.render_kernel
            def endless(self, kernel, *more):
                if MARK.exists():
                    MARK.unlink()
                    kernel = [*kernel, "$ENDLESS:", "bra $ENDLESS;"]
                return render(self, kernel, *more)
            module.PTXRenderer.render_kernel = endless
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Hook())
"""


def tenants_left(address: ProxyAddress) -> list[object]:
    """The proxy's tenants, a moment after the last has hung up: its worker ends by itself."""
    end = time.monotonic() + 10
    while (tenants := address.status()["tenants"]) and time.monotonic() < end:
        time.sleep(0.05)
    return list(tenants)


@pytest.mark.parametrize("soft_compile", ["always", "never"])
def test_a_kernel_that_never_ends_is_stopped_and_the_proxy_serves_the_next_cell(
    place: Path, small: Path, monkeypatch: pytest.MonkeyPatch, soft_compile: str
) -> None:
    mark, hook = place / "mark", place / "hook"
    hook.mkdir()
    mark.touch()
    (hook / "sitecustomize.py").write_text(ENDLESS.format(mark=str(mark)))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(hook), os.environ.get("PYTHONPATH")))))
    device = {"GPUTAX_SOFT_TIMEOUT_S": "1", "GPUTAX_SOFT_COMPILE": soft_compile}
    with own_proxy(ProxyOptions(native_part(SOFTWARE_DEVICE)), {**os.environ, **device}) as address:
        record = api.run((cell(small), cell(small, "offline")), out=place / "o", proxy_socket=address.socket)
        assert tenants_left(address) == [], "what the endless kernel held is free again"
    assert not mark.exists(), "an endless kernel was rendered"
    (failure,) = record.failures
    assert "CUDA Error 702" in failure.what
    assert "a kernel took too long" in failure.next
    assert the_next_cell_ran(record)


def warnings_of(record: RunRecord) -> list[str]:
    """What the software device's compiler had to say, of a record whose only cell is valid."""
    (benchmark,) = record.benchmarks
    assert benchmark.valid
    return [each.text for each in benchmark.warnings if each.code == "soft-compile"]


@pytest.mark.parametrize("environment", ["bare", "bare+proxy"])
def test_a_damaged_compiled_kernel_is_noticed_and_compiled_again(place: Path, small: Path, environment: str) -> None:
    one = dataclasses.replace(cell(small), environment=environment)
    first = api.run((one,), out=place / "first", soft_compile="always")
    assert warnings_of(first) == []
    assert first.benchmarks[0].evidence["software"]["kernels_compiled"] >= 2
    kept = sorted((place / "cache/gputax/kernels").glob("*.so"))
    good = kept[0].read_bytes()
    kept[0].write_bytes(good[: len(good) // 2] + b"x" + good[len(good) // 2 + 1 :])
    second = api.run((one,), out=place / "second", soft_compile="always")
    (warning,) = warnings_of(second)
    assert f"{kept[0]} is damaged and is compiled again" in warning
    third = api.run((one,), out=place / "third", soft_compile="always")
    assert warnings_of(third) == []
    assert third.benchmarks[0].evidence["software"]["kernels_from_cache"] >= 2
    assert third.benchmarks[0].evidence["software"]["launches_compiled"] > 0


@pytest.mark.parametrize("environment", ["bare", "bare+proxy"])
def test_without_a_compiler_the_interpreter_serves_and_the_result_says_so(
    place: Path, small: Path, environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(place / "nothing"))
    one = dataclasses.replace(cell(small), environment=environment)
    record = api.run((one,), out=place / "o", soft_compile="always")
    (warning,) = warnings_of(record)
    assert "no C compiler (cc, gcc or clang) is on the PATH" in warning
    software = record.benchmarks[0].evidence["software"]
    assert (software["launches_compiled"], software["kernels_compiled"]) == (0, 0)
    assert software["launches_interpreted"] > 0


def tenant(place: Path, number: int, file: Path, address: ProxyAddress) -> subprocess.Popen[str]:
    words = [
        "run",
        "--env",
        "bare+proxy",
        "--device",
        "software",
        "--scenario",
        "single-stream",
        "--suite",
        "tiny.toml",
    ]
    words += ["--model", str(file), "--out", f"tenant{number}"]
    return subprocess.Popen(
        [sys.executable, "-m", "gputax", *words],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, SOCKET_VARIABLE: str(address.socket)},
    )


def test_two_tenants_that_compile_the_same_model_at_once_both_get_their_answers(place: Path, small: Path) -> None:
    (place / "tiny.toml").write_text(
        'scenarios = ["single-stream"]\nsample_count = 8\n[single-stream]\npilot_s = 0.1\n'
    )
    with ExitStack() as stack:
        address = stack.enter_context(own_proxy(ProxyOptions(native_part(SOFTWARE_DEVICE)), os.environ))
        tenants = [tenant(place, number, small, address) for number in (1, 2)]
        for process in tenants:
            stack.callback(process.kill)
        shown = [process.communicate(timeout=120)[0] for process in tenants]
    assert [process.returncode for process in tenants] == [0, 0], "\n".join(shown)
    for number in (1, 2):
        (benchmark,) = read_document(RUN, place / f"tenant{number}").benchmarks
        assert benchmark.valid
        assert benchmark.evidence["active"] is True
        assert not [each for each in benchmark.warnings if each.code == "capture"]
