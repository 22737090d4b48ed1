"""PyTorch and ONNX Runtime's CUDA provider with the project's models and null kernels, direct and behind the proxy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gputax.results.reading import RUN
from gputax.results.store import read_document
from tests.conftest import Gputax
from tests.frameworks.conftest import NULL, WAYS

PROVIDERS = {"onnx": "CUDAExecutionProvider", "torch": "torch cuda:0"}
MODELS = ("resnet50", "bert-large", "yolos-small")
# A model has at least as many launches as layers with weights.
LAUNCHES_AT_LEAST = {"resnet50": 50, "bert-large": 100, "yolos-small": 50}


@pytest.mark.parametrize("environment", WAYS)
@pytest.mark.parametrize("workload", MODELS)
@pytest.mark.parametrize("engine", sorted(PROVIDERS))
def test_a_model_runs_to_the_end_and_is_never_called_inference(
    gputax: Gputax, tmp_path: Path, suite: str, engine: str, workload: str, environment: str
) -> None:
    words = ("--engine", engine, "--workload", workload, "--scenario", "single-stream", "--suite", suite)
    done = gputax("run", "--env", environment, *words, *NULL, "--out", "o", timeout=900)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "null kernels" in done.stdout
    record = read_document(RUN, tmp_path / "o")
    assert record.device == "software"
    assert record.device_label == "software device (gputax software device, null kernels of 0 ns), not a GPU"
    (benchmark,) = record.benchmarks
    assert benchmark.provider == PROVIDERS[engine]
    assert "not inference" in benchmark.claim
    assert benchmark.valid
    check_evidence(dict(benchmark.evidence), environment, LAUNCHES_AT_LEAST[workload] * benchmark.queries)


def check_evidence(evidence: dict[str, Any], environment: str, launches: int) -> None:
    assert evidence["active"], evidence
    assert evidence["cuda_runtime"]["asked_for"]
    assert evidence["cuda_runtime"]["self_tests_answered"] > 0
    assert "answers_checked" not in evidence, "null kernels have no answers"
    assert evidence["software"]["launches_null"] >= launches
    assert evidence["software"]["launches_interpreted"] == evidence["software"]["launches_compiled"] == 0
    if environment == "bare+proxy":
        assert evidence["device_nodes"] == []
        assert evidence["calls_by_worker"] == evidence["calls_by_proxy"] > launches
        assert evidence["calls"]["cuLaunchKernel"] >= launches


@pytest.mark.parametrize("engine", sorted(PROVIDERS))
def test_without_null_kernels_a_framework_is_refused_with_the_option(gputax: Gputax, engine: str) -> None:
    words = ("--engine", engine, "--scenario", "single-stream", "--device", "software", "--cuda-runtime")
    done = gputax("run", *words, "--out", "o", timeout=300)
    assert done.returncode == 3
    assert "--soft-kernels null" in " ".join(done.stderr.split())
