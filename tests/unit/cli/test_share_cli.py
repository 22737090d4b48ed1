"""The command line of `gputax share`: its plan, and what it refuses before anything is imported or started."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputax.cli.share import exit_code, share_plan
from gputax.results.documents.base import Failure
from gputax.results.documents.sharing import IsolationRow, SharingRecord
from gputax.worker.probes import limits

Gputax = Callable[..., subprocess.CompletedProcess[str]]
DEFAULTS: dict[str, Any] = {
    "tech": "", "tenants": "1,3,5,7", "workload": "", "engine": "", "device": "auto", "precision": "fp32", "threads": 0,
    "weights": "", "libcuda": "", "batch": 1, "repeats": 5, "window": "10s", "warmup": "2s", "slices": 0, "seed": 7,
}  # fmt: skip


def test_the_defaults_are_the_users_procedure() -> None:
    plan = share_plan("k8s", DEFAULTS)
    assert plan.techniques == ("time-slicing", "mps", "mig")
    assert plan.tenants == (1, 3, 5, 7)
    assert (plan.setup.workload, plan.setup.engine, plan.batch_size) == ("yolos-small", "onnx", 1)
    assert (plan.repeats, plan.window_s, plan.warmup_s) == (5, 10.0, 2.0)


def test_without_a_gpu_the_stand_ins_are_compared() -> None:
    assert share_plan("bare", DEFAULTS).techniques == ("cpu-shared", "cpu-quota")


def test_behind_the_proxy_tenants_run_operations_of_the_driver() -> None:
    setup = share_plan("bare", {**DEFAULTS, "tech": "proxy"}).setup
    assert (setup.workload, setup.engine) == ("micro:operation", "driver")


@pytest.mark.parametrize(
    ("words", "code", "complaint", "hint"),
    [
        (["--tech", "mpss"], 2, "unknown tech 'mpss'", "did you mean 'mps'?"),
        (["--tech", "mps"], 2, "mps does not exist in the environment bare", "--env k8s"),
        (["--tenants", "0"], 2, "a number below 1", "--tenants 1,3,5,7"),
        (["--tenants", "three"], 2, "not a list of whole numbers", "--tenants 1,3,5,7"),
        (["--tenants", "100000"], 2, "more than the maximum of 512", ""),
        (["--slices", "3"], 2, "7 tenants do not fit on a device with 3 slices", "--slices 7"),
        (["--aggressor", "compute", "--slices", "1"], 2, "2 tenants do not fit", "--slices 2"),
        (["--aggressor", "compute", "--tenants", "1,5"], 2, "there are always two tenants", "drop --tenants"),
        (["--window", "soon"], 2, "--window 'soon' is not a time", "--window 10s"),
        (["--window", "-3s"], 2, "--window '-3s' is not a time", "--window 10s"),
        (
            ["--engine", "neighbour"],
            2,
            "unknown engine 'neighbour'",
            "tinygrad, driver, openai, kserve, synthetic",
        ),
        (["--prometheus", "nonsense"], 2, "'nonsense' is not an http address", "http://localhost:9090"),
        (["--prometheus", "http://host:port"], 2, "is not an http address", ""),
        (["--node", "gpu-1"], 2, "--node applies to a container or a cluster", "--env k8s"),
        (["--image", "other:1"], 2, "--image applies to a container", "drop it"),
        (["--ready-timeout", "5"], 2, "--ready-timeout applies to a container", ""),
        (["--proxy-memory-mb", "64"], 2, "applies to the GPU proxy of this machine", "--tech proxy"),
        (["--window", "0s"], 2, "--window must be above zero", "--window 10s"),
        (["--workload", "resnet5"], 2, "unknown workload", "did you mean 'resnet50'?"),
        (["--workload", "micro"], 2, "all tenants must run the same workload", "micro:operation"),
        (["--device", "gpu"], 2, "unknown device 'gpu'", ""),
        (["--engine", "onxx"], 2, "unknown engine", "did you mean 'onnx'?"),
        (["--victim", "single-stream"], 2, "needs a neighbour", "--aggressor compute"),
        (["--victim", "offline", "--aggressor", "compute"], 2, "unknown victim", "known: single-stream"),
        (["--aggressor", "noise"], 2, "unknown aggressor", "known: compute"),
        (["--tech", "proxy", "--engine", "onnx"], 2, "the engine onnx does not use", "--engine tinygrad"),
        (["--tech", "cpu-shared", "--workload", "micro:launch"], 2, "does not support workload micro", "--tech proxy"),
        (["--tech", "cpu-shared", "--device", "cuda"], 2, "does not support cuda", "--env k8s"),
    ],
)
def test_mistakes(gputax: Gputax, tmp_path: Path, words: list[str], code: int, complaint: str, hint: str) -> None:
    done = gputax("share", *words, "--out", "o")
    assert done.returncode == code, done.stderr
    assert complaint in done.stderr
    assert hint in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "o").exists()


def test_a_dry_run_shows_every_cell_and_the_time(
    gputax: Gputax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "current_affinity", lambda pid=0: {0, 1})
    monkeypatch.setattr(limits, "level_quota", lambda level: None)
    done = gputax("share", "--dry-run", "--tenants", "1,3", "--repeats", "2", "--out", "o")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sum(" saturate " in line for line in lines) == 2 * 2 * 2
    assert re.fullmatch(r"8 cells, about .* min on 2 idle cores, .*Nothing was measured\.", " ".join(lines[-2:]))
    assert not (tmp_path / "o").exists()
    told = json.loads(gputax("share", "--dry-run", "--json", "--tenants", "1,3", "--repeats", "2").stdout)
    assert told["at_least_s"] == 8 * (2 + 10)
    assert told["expected_s"] > 2 * told["at_least_s"], "ten runs of YOLOS-small do not fit into ten seconds"


def test_a_dry_run_on_a_gpu_tells_the_least_time(gputax: Gputax) -> None:
    done = gputax("share", "--dry-run", "--env", "k8s", "--tech", "mps", "--tenants", "1", "--repeats", "2")
    assert done.returncode == 0, done.stderr
    assert "2 cells, at least " in done.stdout
    assert "without starting workers and switching the device" in " ".join(done.stdout.split())


def test_a_dry_run_beside_neighbours_names_its_parts(gputax: Gputax) -> None:
    done = gputax("share", "--dry-run", "--json", "--tech", "cpu-shared", "--aggressor", "compute,crash")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cells"] == ["cpu-shared-compute", "cpu-shared-crash", "cpu-shared-isolation"]


def test_no_cluster_is_one_error_before_any_technique_is_named(
    gputax: Gputax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n"
    )
    monkeypatch.setenv("KUBECONFIG", str(config))
    done = gputax("share", "--env", "k8s", "--out", "o")
    assert done.returncode == 3, done.stderr
    assert "127.0.0.1:9" in done.stderr
    assert "left out" not in done.stderr
    assert "cells" not in done.stderr
    assert not (tmp_path / "o").exists()


def isolation(passed: bool | None, check: str = "no foreign memory readable") -> IsolationRow:
    return IsolationRow(technique="cpu-shared", check=check, passed=passed, text="")  # type: ignore[arg-type]


CRASHED = Failure(cell="cpu-shared-crash", kind="CellError", what="the victim went along")
OTHER = Failure(cell="cpu-shared-compute", kind="CellError", what="it broke")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"isolation": (isolation(True), isolation(None))}, 0),
        ({"isolation": (isolation(True), isolation(False))}, 6),
        ({"isolation": (isolation(False),), "failures": (OTHER,)}, 4),
        ({"isolation": (isolation(False, "a crash stays with its tenant"),), "failures": (CRASHED,)}, 6),
    ],
)
def test_the_exit_code_tells_a_pipeline_of_walls_that_do_not_hold(changes: dict[str, Any], code: int) -> None:
    record = SharingRecord(
        gputax_version="0", timestamp="t", complete=True, plan_id="p", plan={}, place="bare", workload="w",
        device_label="CPU", **changes,
    )  # fmt: skip
    assert exit_code(record, accept_disturbed=False) == code
