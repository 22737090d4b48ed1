"""The command line of `gputax share`: its plan, and what it refuses before anything is imported or started."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputax.cli.share import share_plan

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
        (["--tenants", "0"], 2, "a number below 1", ""),
        (["--tenants", "three"], 2, "not a list of whole numbers", ""),
        (["--window", "soon"], 2, "--window 'soon' is no time", ""),
        (["--window", "0s"], 2, "longer than nothing", "--window 10s"),
        (["--workload", "resnet5"], 2, "unknown workload", "did you mean 'resnet50'?"),
        (["--workload", "micro"], 2, "all tenants run one workload", "micro:operation"),
        (["--device", "gpu"], 2, "unknown device 'gpu'", ""),
        (["--engine", "onxx"], 2, "unknown engine", "did you mean 'onnx'?"),
        (["--victim", "single-stream"], 2, "names no neighbour", "--aggressor compute"),
        (["--victim", "offline", "--aggressor", "compute"], 2, "unknown victim", "known: single-stream"),
        (["--aggressor", "noise"], 2, "unknown aggressor", "known: compute"),
        (["--tech", "proxy", "--workload", "resnet50"], 2, "models on the CPU do not use", "micro:operation"),
        (["--tech", "cpu-shared", "--workload", "micro:launch"], 2, "no workload micro", "--tech proxy"),
        (["--tech", "cpu-shared", "--device", "cuda"], 2, "it has no cuda", "--env k8s"),
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
