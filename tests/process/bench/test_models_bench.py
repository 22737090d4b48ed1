"""The bench of models, on a model of milliseconds: what it counts is what really happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import models
from tests.builders.small_models import small_classifier


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("GPUTAX_MODELS", str(tmp_path / "models"))
    return str(small_classifier(tmp_path / "small.onnx"))


def test_cpu_time_of_one_inference(small: str) -> None:
    figures = models.inference_cpu("resnet50", 5, "soft", small)
    assert len(figures["soft_runs"]) == 5
    assert 1e-5 < figures["soft"] < 1.0


def test_a_model_that_cannot_run_gives_no_figure_but_the_reason(small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTAX_SOFT_MEMORY_MB", "1")
    figures = models.inference_cpu("resnet50", 5, "soft", str(small_classifier(Path(small), hidden=1000)))
    assert figures["soft"] is None
    assert "out of memory" in figures["soft_why"]


def test_an_inference_is_one_graph_two_copies_and_a_synchronise(small: str) -> None:
    figures = models.proxy_calls("resnet50", small, runs=4)
    assert figures["proxy_calls_per_inference_by_name"] == {
        "cuCtxSynchronize": 1, "cuGraphLaunch": 1, "cuMemcpyDtoH_v2": 1, "cuMemcpyHtoDAsync_v2": 1,
    }  # fmt: skip
    assert (figures["proxy_calls_per_inference_posted"], figures["proxy_calls_per_inference_answered"]) == (2, 2)
    assert figures["proxy_replayed_steps_per_inference"] >= 2


def test_a_second_start_reads_the_capture_of_the_first(small: str, tmp_path: Path) -> None:
    variables = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert models.first_run("resnet50", small, variables)["capture_from_cache"] is False
    start = models.first_run("resnet50", small, variables)
    assert start["capture_from_cache"] is True
    for part in ("load", "first_run"):
        assert start[part]["cpu_s"] > 0
        assert start[part]["wall_s"] > 0
    assert start["compile"]["wall_s"] < start["load"]["wall_s"] + start["first_run"]["wall_s"]
