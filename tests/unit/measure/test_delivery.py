"""A model reaches a worker that cannot see its file: whole, with its external data and samples, and nowhere else."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gputax.api import own_model
from gputax.errors import PreflightError, WorkerError
from gputax.measure import delivery
from gputax.measure.delivery import delivered
from gputax.plan.cells import Setup
from gputax.worker.received import answer_file
from gputax.worker.workloads.own_model import own_network
from tests.builders.small_models import small_text_model


class Pipe:
    """A worker's answers; one that is far away sees none of this machine's paths."""

    def __init__(self, *, far: bool) -> None:
        self.far = far
        self.pieces = 0

    def call(self, op: str, *, stall_timeout_s: float, **parameters: Any) -> dict[str, Any]:
        assert op == "file"
        self.pieces += "data" in parameters
        if self.far and "files" in parameters:
            parameters["files"] = [{**each, "path": f"/elsewhere{each['path']}"} for each in parameters["files"]]
        return answer_file(parameters)


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    monkeypatch.setenv("GPUTAX_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setattr(delivery, "PIECE_BYTES", 1000)
    path = small_text_model(tmp_path / "inner.onnx")
    model = onnx.load(path)
    onnx.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    np.savez(tmp_path / "in.npz", ids=np.zeros((2, 5), dtype=np.int64))
    own = own_model(tmp_path / "m.onnx", inputs=tmp_path / "in.npz")
    return Setup(own.name, own=own)


def test_a_worker_that_sees_the_file_gets_nothing(setup: Setup) -> None:
    pipe = Pipe(far=False)
    assert delivered(pipe, setup) == setup
    assert delivered(pipe, Setup("resnet50")) == Setup("resnet50")
    assert pipe.pieces == 0


def test_a_worker_that_does_not_gets_all_files_in_pieces(setup: Setup, tmp_path: Path) -> None:
    pipe = Pipe(far=True)
    own = delivered(pipe, setup).own
    assert pipe.pieces > 10
    assert Path(own.file).is_relative_to(tmp_path / "scratch")
    found = own_network(own)  # compares both digests
    assert found.sha256 == setup.own.sha256
    assert found.samples(2, 1)["ids"].shape == (2, 5)
    assert own_network(delivered(pipe, setup).own).sha256 == found.sha256, "a second time replaces the first"


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x"])
def test_a_name_does_not_lead_out_of_the_folder(setup: Setup, name: str) -> None:
    with pytest.raises(WorkerError, match="leads out of the folder"):
        answer_file({"name": name, "digest": "d", "offset": 0, "data": base64.b64encode(b"x").decode()})


@pytest.mark.parametrize("change", [{"data": "?"}, {"offset": "x"}, {"name": None, "offset": None}])
def test_nonsense_is_refused(setup: Setup, change: dict[str, Any]) -> None:
    with pytest.raises(WorkerError, match="malformed request"):
        answer_file({"name": "a", "digest": "d", "offset": 0, "data": "", **change})


def test_a_place_without_space_says_so(setup: Setup, tmp_path: Path) -> None:
    (tmp_path / "scratch").write_text("a file where the folder should be")
    with pytest.raises(PreflightError, match="cannot be stored here"):
        delivered(Pipe(far=True), setup)


def test_a_torch_module_alone_is_sent_and_a_package_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTAX_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").touch()
    for place in ("nets.py", "package/nets.py"):
        (tmp_path / place).write_text("def make(): ...")
    alone, inside = (own_model(f"{module}:make", shapes=["x=1x2"]) for module in ("nets", "package.nets"))
    sent = delivered(Pipe(far=True), Setup(alone.name, own=alone)).own
    assert sent.file != alone.file
    assert sent.root == str(Path(sent.file).parent)
    assert own_network(sent).sha256 == alone.sha256
    assert delivered(Pipe(far=True), Setup(inside.name, own=inside)).own == inside
