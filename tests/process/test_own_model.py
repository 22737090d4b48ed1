"""A model of the user's own in every verb: by its file's name and content, with the answers of its own graph."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gputax.worker.workloads.model_store import file_sha256
from tests.builders.small_models import small_classifier, small_text_model

Gputax = Callable[..., subprocess.CompletedProcess[str]]
SHAPED = ("--shape", "ids=1x16", "--input", "ids=0..999")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return small_text_model(tmp_path / "text.onnx")


def test_run_names_file_and_content_everywhere(gputax: Gputax, model: Path, tiny_suite: str, tmp_path: Path) -> None:
    scenarios = "offline,server,single-stream,saturate"
    words = ("--suite", tiny_suite, "--scenario", scenarios, "--model", "text.onnx", *SHAPED)
    done = gputax("run", *words, "--out", "o")
    assert done.returncode in (0, 5), done.stderr
    name = f"text.onnx@{file_sha256(model)[:12]}"
    record = json.loads((tmp_path / "o/benchmark_results.json").read_text())
    assert not record["failures"]
    assert {each["workload"] for each in record["benchmarks"]} == {name}
    assert {each["weights_sha256"] for each in record["benchmarks"]} == {file_sha256(model)}
    assert record["fingerprint"]["setups"][name]["samples"] == "drawn: ids int64 [batch, 16] 0..999"
    assert all("not an MLPerf model" in each["claim"] for each in record["benchmarks"])
    assert name in done.stdout
    assert "resnet50" not in done.stdout + (tmp_path / "o/benchmark_results.json").read_text()
    page = gputax("report", "o", "--out", "r.html")
    assert page.returncode == 0, page.stderr
    assert name in (tmp_path / "r.html").read_text()
    text = gputax("report", "o", "--format", "markdown").stdout
    assert f"--model {model} --shape ids=1x16 --input ids=0..999" in text, "how to repeat it"
    again = gputax("run", "--like", "o", "--dry-run", "--json")
    assert {cell["setup"]["own"]["sha256"] for cell in json.loads(again.stdout)} == {file_sha256(model)}


def test_two_contents_are_not_comparable(gputax: Gputax, model: Path, tiny_suite: str, tmp_path: Path) -> None:
    words = ("--suite", tiny_suite, "--scenario", "single-stream", "--model", "text.onnx", *SHAPED)
    assert gputax("run", *words, "--out", "a").returncode == 0
    small_text_model(model, seed=2)
    assert gputax("run", *words, "--out", "b").returncode == 0
    done = gputax("compare", "a", "b", "--format", "json")
    assert done.returncode == 7, done.stderr
    metrics = json.loads(done.stdout)["metrics"]
    assert {each["verdict"] for each in metrics} == {"not comparable"}
    assert any("workload: text.onnx@" in text for each in metrics for text in each["differences"])


def test_other_inputs_are_another_measurement(gputax: Gputax, model: Path, tiny_suite: str) -> None:
    words = ("--suite", tiny_suite, "--scenario", "single-stream", "--model", "text.onnx")
    for tokens, out in ((16, "a"), (8, "b")):
        assert gputax("run", *words, "--shape", f"ids=1x{tokens}", "--out", out).returncode == 0
    done = gputax("compare", "a", "b", "--format", "json")
    assert {each["verdict"] for each in json.loads(done.stdout)["metrics"]} == {"not comparable"}


def test_duet_share_neighbours_and_client(gputax: Gputax, model: Path, tmp_path: Path) -> None:
    name = f"text.onnx@{file_sha256(model)[:12]}"
    words = ("--model", "text.onnx", *SHAPED)
    duet = gputax("duet", "bare", "bare", *words, "--max-time", "5", "--no-control", "--json", "--out", "d")
    assert duet.returncode in (0, 6, 7), duet.stderr
    found = json.loads(duet.stdout)
    assert {each["workload"] for each in found["metrics"]} == {name}
    assert {side["fingerprint"]["weights_sha256"] for side in found["sides"]} == {file_sha256(model)}
    share = ("--tech", "cpu-shared", "--repeats", "1", "--window", "1s", "--warmup", "0.2s")
    shared = gputax("share", *share, "--tenants", "1,2", *words, "--out", "s", "--json")
    assert shared.returncode == 0, shared.stderr
    assert name in shared.stdout
    beside = gputax("share", *share, "--aggressor", "compute", *words, "--out", "n", "--json")
    assert beside.returncode in (0, 5, 6), beside.stderr
    assert name in beside.stdout
    client = gputax("client", *words, "--duration", "1s", "--port", "0", "--json")
    assert client.returncode == 0, client.stderr
    summary = json.loads(client.stdout)
    assert summary["workload"] == name
    assert "seeded" not in summary["claim"]


def test_an_index_out_of_its_table_fails_the_cell_with_the_engines_words(
    gputax: Gputax, model: Path, tiny_suite: str, tmp_path: Path
) -> None:
    words = ("--suite", tiny_suite, "--scenario", "single-stream", "--model", "text.onnx", "--shape", "ids=1x16")
    done = gputax("run", *words, "--input", "ids=0..5000", "--out", "o")
    assert done.returncode == 4, done.stderr
    (failure,) = json.loads((tmp_path / "o/benchmark_results.json").read_text())["failures"]
    assert "out of data bounds" in failure["what"]


def test_a_foreign_network_as_weights_is_refused_with_the_way_out(
    gputax: Gputax, tiny_suite: str, tmp_path: Path
) -> None:
    small_classifier(tmp_path / "small.onnx")
    words = ("--suite", tiny_suite, "--scenario", "single-stream", "--weights", "small.onnx", "--out", "o")
    done = gputax("run", *words)
    assert done.returncode == 3, done.stderr
    assert "the file is not resnet50" in done.stderr
    assert "--model small.onnx" in done.stderr


# Stands for ssh: the worker's file system has an empty directory in the place of the model's.
FAR = """#!/bin/sh
exec unshare --mount sh -c 'mount -t tmpfs none {folder} && cd / && exec {python} -m gputax.worker'
"""


@pytest.mark.skipif(subprocess.call(["unshare", "--mount", "true"]) != 0, reason="needs the right to mount")
def test_a_worker_that_cannot_see_the_file_gets_it(gputax: Gputax, tiny_suite: str, tmp_path: Path) -> None:
    folder, tools = tmp_path / "models", tmp_path / "tools"
    folder.mkdir()
    tools.mkdir()
    model = small_text_model(folder / "text.onnx")
    (tools / "ssh").write_text(FAR.format(folder=folder, python=sys.executable))
    (tools / "ssh").chmod(0o755)
    words = ("--suite", tiny_suite, "--scenario", "single-stream", "--model", str(model), "--shape", "ids=1x16")
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    done = gputax("run", "--env", "ssh:far", *words, "--out", "o", PATH=path, TMPDIR=str(tmp_path))
    assert done.returncode in (0, 5), done.stderr
    (benchmark,) = json.loads((tmp_path / "o/benchmark_results.json").read_text())["benchmarks"]
    assert benchmark["weights_sha256"] == file_sha256(model)
