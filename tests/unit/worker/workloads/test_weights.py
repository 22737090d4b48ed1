"""The model store builds once, checks always, mends what is damaged and says so."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import resource
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from gputax.errors import PreflightError
from gputax.worker.workloads import load_workload, onnx_file, weights
from gputax.worker.workloads.model_store import ModelFile, manifest_path, models_folder
from gputax.worker.workloads.weights import build, ensure, seeded_path
from gputax.worker.workloads.workload import Workload


def _files(model: ModelFile) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in model.path.parent.iterdir() if path.suffix != ".lock"}


def test_first_use_builds_and_says_so(small_bert: Workload, models: Path) -> None:
    model = ensure(small_bert)
    assert model.path == models / "small-bert" / "fp32-seed7.onnx"
    assert (model.source, model.seed, model.precision) == ("seeded", 7, "fp32")
    assert model.parameters == small_bert.parameter_count
    assert model.notes == ("small-bert fp32: not built yet; built with seed 7",)
    assert model.sha256 == hashlib.sha256(model.path.read_bytes()).hexdigest()
    assert sorted(_files(model)) == ["fp32-seed7.manifest.json", "fp32-seed7.onnx", "fp32-seed7.weights"]


def test_second_use_verifies_and_is_quiet(small_bert: Workload, models: Path) -> None:
    first = ensure(small_bert)
    before = first.path.stat().st_mtime_ns
    second = ensure(small_bert)
    assert second == replace(first, notes=())
    assert second.path.stat().st_mtime_ns == before


def test_the_graph_names_the_sha256_of_its_weights(small_bert: Workload, models: Path) -> None:
    model = ensure(small_bert)
    stored = model.path.with_suffix(".weights").read_bytes()
    proto = onnx.load(model.path, load_external_data=False)
    assert {prop.key: prop.value for prop in proto.metadata_props} == {
        "weights_sha256": hashlib.sha256(stored).hexdigest()
    }
    manifest = json.loads(manifest_path(model.path).read_text())
    assert manifest["graph_version"] == small_bert.graph_version
    assert {file["name"]: file["bytes"] for file in manifest["files"]} == {
        "fp32-seed7.onnx": model.path.stat().st_size,
        "fp32-seed7.weights": len(stored),
    }


def test_weights_in_the_file_are_the_seeded_values(small_bert: Workload, models: Path) -> None:
    from gputax.worker.workloads.workload import seeded_state

    stored = onnx.load(ensure(small_bert, seed=3).path).graph.initializer
    by_name = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in stored}
    state = seeded_state(small_bert, 3)
    for parameter in small_bert.parameters:
        expected = state[parameter.name]
        expected = expected.T if parameter.transposed else expected
        assert (by_name[parameter.name] == expected).all()
    assert any(parameter.transposed for parameter in small_bert.parameters)


def test_building_twice_gives_the_same_bytes(small_bert: Workload, models: Path) -> None:
    first = _files(build(small_bert))
    assert _files(build(small_bert)) == first


def test_seeds_and_precisions_live_side_by_side(small_bert: Workload, models: Path) -> None:
    built = [ensure(small_bert, precision, seed) for precision in ("fp32", "fp16") for seed in (7, 8)]
    assert len({model.sha256 for model in built}) == 4
    assert len({model.path for model in built}) == 4
    sizes = [model.path.with_suffix(".weights").stat().st_size for model in built]
    assert sizes[2] < 0.75 * sizes[0]


@pytest.mark.parametrize("suffix", [".onnx", ".weights"])
def test_a_flipped_bit_is_noticed_and_mended(small_bert: Workload, models: Path, suffix: str) -> None:
    good = ensure(small_bert)
    path = good.path.with_suffix(suffix)
    content = path.read_bytes()
    path.write_bytes(content[:1000] + bytes([content[1000] ^ 1]) + content[1001:])
    mended = ensure(small_bert)
    assert mended.sha256 == good.sha256
    assert path.read_bytes() == content
    assert len(mended.notes) == 1
    assert f"fp32-seed7{suffix} has sha256" in mended.notes[0]
    assert mended.notes[0].endswith("built with seed 7")


@pytest.mark.parametrize("damage", ["truncated", "missing", "manifest", "manifest-missing", "version"])
def test_other_damage_is_mended_too(small_bert: Workload, models: Path, damage: str) -> None:
    good = ensure(small_bert)
    values, manifest = good.path.with_suffix(".weights"), manifest_path(good.path)
    expected = ""
    if damage == "truncated":
        os.truncate(values, 100)
        expected = "has 100 bytes instead of"
    elif damage == "missing":
        values.unlink()
        expected = "cannot be read"
    elif damage == "manifest":
        manifest.write_text('{"workload": ')
        expected = "the manifest is missing or damaged"
    elif damage == "manifest-missing":
        manifest.unlink()
        expected = "the manifest is missing or damaged"
    else:
        manifest.write_text(manifest.read_text().replace(small_bert.graph_version, "0123456789ab"))
        expected = "graph version 0123456789ab is not"
    mended = ensure(small_bert)
    assert expected in mended.notes[0]
    assert mended.sha256 == good.sha256
    assert ensure(small_bert).notes == ()


def test_any_change_of_the_graph_changes_its_version(small_bert: Workload) -> None:
    graph = small_bert.graph
    versions = {
        replace(small_bert, graph=replace(graph, nodes=graph.nodes[:-1])).graph_version,
        replace(small_bert, graph=replace(graph, constants=graph.constants[1:])).graph_version,
        replace(
            small_bert,
            graph=replace(graph, parameters=(replace(graph.parameters[0], std=1.0), *graph.parameters[1:])),
        ).graph_version,
        small_bert.graph_version,
    }
    assert len(versions) == 4


def test_a_process_waits_for_one_that_builds(small_bert: Workload, models: Path) -> None:
    path = seeded_path(small_bert.name, "fp32", 7)
    path.parent.mkdir(parents=True)
    done: list[ModelFile] = []
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiter = threading.Thread(target=lambda: done.append(ensure(small_bert)))
        waiter.start()
        waiter.join(0.5)
        assert waiter.is_alive()
        assert not path.exists()
    waiter.join(30)
    assert done[0].notes


def test_what_another_process_built_in_between_is_used(
    small_bert: Workload, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., AbstractContextManager[float]] = vars(weights)["locked"]
    built: list[Any] = []

    def late(model: Path, *, exclusive: bool) -> AbstractContextManager[float]:
        if exclusive and not built:
            built.append(True)
            built.append(build(small_bert))
        return real(model, exclusive=exclusive)

    monkeypatch.setattr(weights, "locked", late)
    model = ensure(small_bert)
    assert "built by another process" in model.notes[0]
    assert model.sha256 == built[1].sha256


def test_a_verified_model_needs_no_write_access(
    small_bert: Workload, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = ensure(small_bert)
    built.path.with_suffix(".lock").unlink()

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    # Tests may run as root, whom no permission stops.
    monkeypatch.setattr(Path, "mkdir", refuse)
    assert ensure(small_bert).sha256 == built.sha256
    built.path.unlink()
    with pytest.raises(PreflightError, match="Read-only file system"):
        ensure(small_bert)


def test_a_folder_that_cannot_be_made(small_bert: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GPUTAX_MODELS", str(tmp_path / "file" / "models"))
    with pytest.raises(PreflightError) as caught:
        ensure(small_bert)
    assert str(tmp_path / "file" / "models") in caught.value.where
    assert "GPUTAX_MODELS" in caught.value.next_step


def test_too_little_space_is_noticed_before_writing(
    small_bert: Workload, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(models.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=5))
    monkeypatch.setattr(onnx_file, "write_weights", lambda *_: pytest.fail("wrote anyway"))
    with pytest.raises(PreflightError, match="not enough disk space"):
        ensure(small_bert)


@pytest.fixture
def small_file_limit() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_fills_leaves_nothing_behind(small_bert: Workload, models: Path, small_file_limit: None) -> None:
    with pytest.raises(PreflightError) as caught:
        ensure(small_bert)
    assert "full" in caught.value.what
    assert "GPUTAX_MODELS" in caught.value.next_step
    assert [path.suffix for path in (models / "small-bert").iterdir()] == [".lock"]


def test_an_interrupt_leaves_the_old_model(small_bert: Workload, models: Path) -> None:
    good = ensure(small_bert)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(small_bert, progress=interrupt)
    assert ensure(small_bert) == replace(good, notes=())
    assert not list(models.rglob("*.partial"))


def test_progress_ends_at_the_whole(small_bert: Workload, models: Path) -> None:
    seen: list[tuple[int, int]] = []
    model = ensure(small_bert, progress=lambda done, total: seen.append((done, total)))
    size = model.path.with_suffix(".weights").stat().st_size
    assert seen[-1] == (size, size)
    assert seen == sorted(seen)
    assert len(seen) == len(small_bert.parameters)


def test_the_models_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPUTAX_MODELS", str(tmp_path / "a"))
    assert models_folder() == tmp_path / "a"
    monkeypatch.delenv("GPUTAX_MODELS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert models_folder() == tmp_path / "gputax" / "models"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert models_folder() == tmp_path / "home" / ".cache" / "gputax" / "models"


def test_resnet50_is_built_from_the_published_names(resnet50_model: ModelFile) -> None:
    assert resnet50_model.parameters == 25_557_032
    assert resnet50_model.bytes == pytest.approx(103e6, rel=0.01)
    assert load_workload("resnet50").parameters[0].name == "resnet.embedder.embedder.convolution.weight"
