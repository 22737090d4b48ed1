"""A torch module of the user's own in every verb, with the real torch: by its factory's name and its content."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from gputax.worker.workloads.model_store import file_sha256

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch warns of its own deprecations when imported
    pytest.importorskip("torch", reason="needs torch: make test-torch")

pytestmark = pytest.mark.torch

Gputax = Callable[..., subprocess.CompletedProcess[str]]
# It fails unless it is called as an engine must call it.
SOURCE = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(1000, 32)
        self.layer = torch.nn.Linear(32, 10)

    def forward(self, ids, scale=None):
        if self.training or not torch.is_inference_mode_enabled():
            raise RuntimeError("not called for inference")
        found = self.layer(self.table(ids).mean(1))
        return {"logits": found * scale if scale is not None else found, "ids": (ids, None)}


def make():
    print("a factory may print")
    return Net()


def half():
    return Net().half()
"""
WORDS = ("--model", "nets:make", "--shape", "ids=1x16", "--input", "ids=0..999")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "nets.py"
    path.write_text(SOURCE)
    return path


def test_run_names_factory_and_content_everywhere(
    gputax: Gputax, source: Path, tiny_suite: str, tmp_path: Path
) -> None:
    scenarios = "offline,server,single-stream,saturate"
    done = gputax("run", "--suite", tiny_suite, "--scenario", scenarios, *WORDS, "--out", "o", timeout=300)
    assert done.returncode in (0, 5), done.stderr
    name = f"nets:make@{file_sha256(source)[:12]}"
    record = json.loads((tmp_path / "o/benchmark_results.json").read_text())
    assert not record["failures"]
    assert {each["workload"] for each in record["benchmarks"]} == {name}
    assert {each["engine"] for each in record["benchmarks"]} == {"torch"}
    facts = record["fingerprint"]["setups"][name]
    assert facts["model_source_sha256"] == file_sha256(source)
    assert facts["samples"] == "drawn: ids int64 [batch, 16] 0..999"
    assert all("not an MLPerf model" in each["claim"] for each in record["benchmarks"])
    assert name in done.stdout
    assert "resnet50" not in done.stdout + (tmp_path / "o/benchmark_results.json").read_text()
    text = gputax("report", "o", "--format", "markdown").stdout
    assert "--model nets:make --shape ids=1x16 --input ids=0..999" in text, "how to repeat it"
    again = gputax("run", "--suite", tiny_suite, "--scenario", "single-stream", *WORDS, "--out", "p", timeout=300)
    assert again.returncode in (0, 5), again.stderr
    other = json.loads((tmp_path / "p/benchmark_results.json").read_text())["fingerprint"]["setups"][name]
    assert other["weights_sha256"] == facts["weights_sha256"], "its own random weights are seeded"


def test_duet_share_neighbours_and_client(gputax: Gputax, source: Path) -> None:
    name = f"nets:make@{file_sha256(source)[:12]}"
    duet = gputax(
        "duet", "bare", "bare", *WORDS, "--max-time", "5", "--no-control", "--json", "--out", "d", timeout=300
    )
    assert duet.returncode in (0, 6, 7), duet.stderr
    found = json.loads(duet.stdout)
    assert {each["workload"] for each in found["metrics"]} == {name}
    assert len({side["fingerprint"]["weights_sha256"] for side in found["sides"]}) == 1
    share = ("--tech", "cpu-shared", "--repeats", "1", "--window", "1s", "--warmup", "0.2s")
    shared = gputax("share", *share, "--tenants", "1,2", *WORDS, "--out", "s", "--json", timeout=300)
    assert shared.returncode == 0, shared.stderr
    assert name in shared.stdout
    beside = gputax("share", *share, "--aggressor", "compute", *WORDS, "--out", "n", "--json", timeout=300)
    assert beside.returncode in (0, 5, 6), beside.stderr
    assert name in beside.stdout
    client = gputax("client", *WORDS, "--duration", "1s", "--port", "0", "--json", timeout=300)
    assert client.returncode == 0, client.stderr
    assert json.loads(client.stdout)["workload"] == name


def test_weights_of_half_precision_get_inputs_of_it(gputax: Gputax, source: Path) -> None:
    words = ("--model", "nets:half", *WORDS[2:], "--shape", "scale=1x10", "--duration", "1s", "--port", "0", "--json")
    done = gputax("client", *words, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["workload"].startswith("nets:half@")


def test_a_forward_that_fails_is_a_failed_cell_in_its_own_words(
    gputax: Gputax, source: Path, tiny_suite: str, tmp_path: Path
) -> None:
    words = ("--suite", tiny_suite, "--scenario", "single-stream", *WORDS[:-1], "ids=0..5000", "--out", "o")
    done = gputax("run", *words, timeout=300)
    assert done.returncode == 4, done.stderr
    (failure,) = json.loads((tmp_path / "o/benchmark_results.json").read_text())["failures"]
    assert "the module's forward failed: IndexError" in failure["what"]


# Stands for ssh: the worker's file system has an empty directory in the place of the module's.
FAR = """#!/bin/sh
exec unshare --mount sh -c 'mount -t tmpfs none {folder} && cd / && exec {python} -m gputax.worker'
"""


@pytest.mark.skipif(subprocess.call(["unshare", "--mount", "true"]) != 0, reason="needs the right to mount")
@pytest.mark.parametrize("in_package", [False, True])
def test_a_worker_that_cannot_see_a_single_file_gets_it_and_a_package_must_be_there(
    gputax: Gputax, tiny_suite: str, tmp_path: Path, in_package: bool
) -> None:
    folder, tools = tmp_path / "models", tmp_path / "tools"
    (folder / "package").mkdir(parents=True)
    tools.mkdir()
    (folder / "package/__init__.py").touch()
    for place in (folder / "nets.py", folder / "package/nets.py"):
        place.write_text(SOURCE)
    (tools / "ssh").write_text(FAR.format(folder=folder, python=sys.executable))
    (tools / "ssh").chmod(0o755)
    model = "package.nets:make" if in_package else "nets:make"
    words = ("--suite", tiny_suite, "--scenario", "single-stream", "--model", model, *WORDS[2:])
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    done = gputax(
        "run", "--env", "ssh:far", *words, "--out", "o", cwd=folder, PATH=path, TMPDIR=str(tmp_path), timeout=300
    )
    if in_package:
        assert done.returncode == 3, done.stderr
        assert "there is no Python module package.nets" in done.stderr
    else:
        assert done.returncode in (0, 5), done.stderr
