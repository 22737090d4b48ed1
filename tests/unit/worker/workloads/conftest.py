"""Small workloads of each kind, an empty model store per test, and ResNet-50 built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputax.worker.workloads import load_workload
from gputax.worker.workloads.bert_large import BertSize, bert
from gputax.worker.workloads.model_store import ModelFile
from gputax.worker.workloads.resnet50 import ResNetSize, resnet
from gputax.worker.workloads.weights import ensure
from gputax.worker.workloads.workload import Workload
from gputax.worker.workloads.yolos_small import YolosSize, yolos


@pytest.fixture(scope="session")
def small_resnet() -> Workload:
    return resnet("small-resnet", ResNetSize(depths=(1, 2), widths=(32, 64), stem=16, classes=10, image=64))


@pytest.fixture(scope="session")
def small_bert() -> Workload:
    size = BertSize(layers=2, hidden=64, heads=4, intermediate=96, vocabulary=300, positions=40, sequence=24)
    return bert("small-bert", size)


@pytest.fixture(scope="session")
def small_yolos() -> Workload:
    size = YolosSize(layers=3, hidden=48, heads=3, intermediate=64, image=(48, 80), detections=5, labels=7)
    return yolos("small-yolos", size)


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "models"
    monkeypatch.setenv("GPUTAX_MODELS", str(folder))
    return folder


@pytest.fixture(scope="session")
def resnet50_model(tmp_path_factory: pytest.TempPathFactory) -> ModelFile:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUTAX_MODELS", str(tmp_path_factory.mktemp("resnet50")))
        return ensure(load_workload("resnet50"))
