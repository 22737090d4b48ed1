"""`gputax models` lists, builds and fetches; results on stdout, progress and notes on stderr."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gputax.cli.models import models as command
from gputax.errors import PreflightError, UsageError
from gputax.worker.workloads import fetch as fetching
from gputax.worker.workloads import load_workload
from gputax.worker.workloads.model_list import list_models
from gputax.worker.workloads.model_store import manifest_path
from gputax.worker.workloads.weights import ensure, seeded_path


def test_an_empty_store_lists_what_could_be(models: Path) -> None:
    listed = list_models()
    assert {(model.name, model.source, model.precision) for model in listed} == {
        ("resnet50", "seeded", "fp32"),
        ("resnet50", "seeded", "fp16"),
        ("resnet50", "official", "fp32"),
        ("bert-large", "seeded", "fp32"),
        ("bert-large", "seeded", "fp16"),
        ("bert-large", "official", "fp32"),
        ("yolos-small", "seeded", "fp32"),
        ("yolos-small", "seeded", "fp16"),
        ("llm-tiny", "seeded", "fp32"),
        ("llm-tiny", "seeded", "fp16"),
    }
    assert {model.state for model in listed} == {"missing"}
    assert not models.exists()


def test_states_of_a_model(models: Path) -> None:
    workload = load_workload("yolos-small")
    built = ensure(workload, "fp16", seed=9)

    def state(*, verify: bool) -> tuple[str, str]:
        (found,) = [model for model in list_models(verify=verify) if model.path == built.path]
        assert (found.seed, found.source, found.precision) == (9, "seeded", "fp16")
        return found.state, found.problem

    assert state(verify=False) == ("present", "")
    assert state(verify=True) == ("verified", "")
    weights = built.path.with_suffix(".weights")
    content = bytearray(weights.read_bytes())
    content[5000] ^= 1
    weights.write_bytes(content)
    assert state(verify=False)[0] == "present"
    assert state(verify=True)[0] == "damaged"
    weights.unlink()
    assert state(verify=False) == ("damaged", "fp16-seed9.weights cannot be read (No such file or directory)")


def test_an_outdated_and_an_unreadable_manifest(models: Path) -> None:
    workload = load_workload("yolos-small")
    path = ensure(workload, "fp16").path
    manifest = manifest_path(path)
    manifest.write_text(manifest.read_text().replace(workload.graph_version, "0" * 12))
    assert {model.path: model.state for model in list_models()}[path] == "outdated"
    manifest.write_text("{}")
    assert {model.path: model.state for model in list_models()}[path] == "damaged"


def test_build_then_list(models: Path) -> None:
    runner = CliRunner()
    result = runner.invoke(command, ["build", "resnet50", "--precision", "fp16", "--seed", "3"])
    assert result.exit_code == 0, result.output
    path = seeded_path("resnet50", "fp16", 3)
    assert result.stdout.startswith(f"{path}  52.0 MB  seeded  sha256 ")
    assert "building resnet50 fp16: 51.9 MB of 51.9 MB (100 %)" in result.stderr
    assert "not built yet; built with seed 3" in result.stderr
    assert len(result.stderr.splitlines()) < 10

    again = runner.invoke(command, ["build", "resnet50", "--precision", "fp16", "--seed", "3", "--json"])
    (entry,) = json.loads(again.stdout)
    assert (entry["path"], entry["source"], entry["notes"]) == (str(path), "seeded", [])
    assert again.stderr == ""

    listed = json.loads(runner.invoke(command, ["list", "--json", "--verify"]).stdout)
    assert {row["path"]: row["state"] for row in listed}[str(path)] == "verified"
    table = runner.invoke(command, ["list"], env={"COLUMNS": "240"}).stdout
    assert entry["sha256"][:12] in table
    assert "present" in table


def test_force_writes_anew(models: Path) -> None:
    path = ensure(load_workload("resnet50"), "fp16").path
    before = path.stat().st_ino
    result = CliRunner().invoke(command, ["build", "resnet50", "--precision", "fp16", "--force"])
    assert result.exit_code == 0
    assert path.stat().st_ino != before


@pytest.mark.parametrize(
    "arguments", [["build"], ["build", "resnet50", "--seed", "-1"], ["build", "resnet50", "--precision", "int8"]]
)
def test_wrong_use(models: Path, arguments: list[str]) -> None:
    assert CliRunner().invoke(command, arguments).exit_code == 2


def test_errors_reach_the_caller_whole(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(url: str) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(fetching, "_open_url", no_network)
    runner = CliRunner()
    assert isinstance(runner.invoke(command, ["build", "resnet5"]).exception, UsageError)
    assert isinstance(runner.invoke(command, ["fetch", "yolos-small"]).exception, UsageError)
    failed = runner.invoke(command, ["fetch", "bert-large"]).exception
    assert isinstance(failed, PreflightError)
    assert "gputax models fetch bert-large" in failed.next_step
