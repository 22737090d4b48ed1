"""`gputax selftest` with real frameworks: null kernels compare launches, kernels that compute leave frameworks out."""

from __future__ import annotations

import json
from pathlib import Path

from gputax.results.documents.selftest import SelftestRecord
from gputax.results.reading import SELFTEST
from gputax.results.store import read_document
from tests.conftest import Gputax
from tests.frameworks.conftest import NULL

PROVIDERS = {"onnx": "CUDAExecutionProvider", "torch": "torch cuda:0"}
LAUNCHES_AT_LEAST = 50
"""Of one ResNet-50: at least one for each layer with weights."""


def models_of(record: SelftestRecord) -> dict[str, tuple[str, str]]:
    return {check.name: (check.status, check.reason) for check in record.checks if check.group == "models"}


def test_with_null_kernels_both_frameworks_launch_the_same_on_both_sides(gputax: Gputax, tmp_path: Path) -> None:
    done = gputax("selftest", *NULL, "--only", "models,copies", "--model", "resnet50", "--out", "out", timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    record = read_document(SELFTEST, tmp_path / "out")
    assert record.complete
    assert record.equal
    assert record.null_kernels
    assert not record.is_gpu
    assert models_of(record)["resnet50 with tinygrad"][0] == "skipped"
    for engine, provider in PROVIDERS.items():
        (check,) = [each for each in record.checks if each.name == f"resnet50 with {engine}"]
        assert check.status == "pass", check
        assert check.bare == check.proxied
        assert check.bare["provider"] == provider
        assert set(check.bare["launches"]) == {check.bare["launches"][0]}
        assert check.bare["launches"][0] >= LAUNCHES_AT_LEAST
        assert "digests" not in check.bare, "outputs of null kernels are never kept"
        proxied = record.evidence[f"resnet50 with {engine}"]["bare+proxy"]
        assert proxied["active"] is True
        assert proxied["cuda_runtime"]["self_tests_answered"] > 0
    files = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert sorted(files) == ["environment.json", "report.md", "selftest.json"]
    for name in ("report.md", "selftest.json"):
        assert "null kernels of 0 ns" in files[name]
    assert "null kernels" in done.stdout
    assert "no outputs compared" in files["report.md"]


def test_a_duet_of_each_framework_is_measured_and_labelled(gputax: Gputax, tmp_path: Path) -> None:
    done = gputax("selftest", *NULL, "--model", "resnet50", "--duet-time", "15", "--out", "out", timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    record = read_document(SELFTEST, tmp_path / "out")
    assert [(each.workload, each.failure) for each in record.duets] == [
        ("resnet50 with onnx", ""), ("resnet50 with torch", ""),
    ]  # fmt: skip
    for each in record.duets:
        assert each.overhead
        comparison = json.loads((tmp_path / "out" / each.directory / "comparison.json").read_text())
        assert "null kernels" in json.dumps(comparison)
        assert "--soft-kernels null" in comparison["command"]
    skipped = {check.group for check in record.checks if check.status == "skipped"}
    assert skipped == {"kernels", "libraries", "streams", "graphs", "host-memory", "faults", "runtime", "models"}


def test_with_kernels_that_compute_frameworks_are_skipped_with_the_option(gputax: Gputax, tmp_path: Path) -> None:
    words = ("selftest", "--device", "software", "--cuda-runtime", "--only", "models", "--model", "resnet50")
    done = gputax(*words, "--out", "out", timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    found = models_of(read_document(SELFTEST, tmp_path / "out"))
    assert found["resnet50 with tinygrad"] == ("pass", "")
    for engine in PROVIDERS:
        status, reason = found[f"resnet50 with {engine}"]
        assert status == "skipped"
        assert "--soft-kernels null" in reason
