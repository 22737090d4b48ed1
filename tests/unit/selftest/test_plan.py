"""Which groups and models a self-test asks, and why it leaves others out."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputax.errors import PreflightError, UsageError
from gputax.plan.driver import DriverChoice
from gputax.selftest.plan import MODELS, Request, images, known_groups, models, refuse_unknown_groups, title_of

SOFTWARE, CUDA = DriverChoice("software"), DriverChoice("cuda")


def test_tables_are_asked_only_with_the_operators_word() -> None:
    without, with_it = Request(CUDA).groups, Request(CUDA, cuda_runtime=True).groups
    assert not [name for name in without if name.startswith("table-")]
    assert len([name for name in with_it if name.startswith("table-")]) == 8
    assert Request(CUDA, only=("graphs", "copies")).groups == ("copies", "graphs")


def test_on_a_gpu_every_model_runs_with_every_engine_once_the_runtime_is_allowed() -> None:
    wanted, skipped = models(Request(CUDA, cuda_runtime=True))
    assert (len(wanted), skipped) == (9, [])
    wanted, skipped = models(Request(CUDA))
    assert wanted == [(model, "tinygrad") for model in MODELS]
    assert {check.reason for check in skipped} == {"it is on the CUDA runtime: add --cuda-runtime"}


def test_on_the_software_device_one_model_runs_unless_others_are_named() -> None:
    wanted, skipped = models(Request(SOFTWARE, cuda_runtime=True))
    assert wanted == [("resnet50", "tinygrad")]
    assert len(skipped) == 8
    assert models(Request(SOFTWARE, models=("yolos-small",)))[0] == [("yolos-small", "tinygrad")]


def test_every_group_has_a_title_and_an_unknown_one_is_refused() -> None:
    assert all(title_of(name) for name in known_groups())
    with pytest.raises(UsageError, match="unknown group of the self-test 'copy'") as raised:
        refuse_unknown_groups(("copy",))
    assert "copies" in raised.value.next_step


def test_images_that_are_not_built_are_a_preflight_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTAX_NATIVE", str(tmp_path))
    with pytest.raises(PreflightError, match="not built") as raised:
        images()
    assert "make native" in raised.value.next_step
