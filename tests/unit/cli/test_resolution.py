from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from gputax.cli.doctor import minutes_for, sentences
from gputax.results.documents.comparison import Resolution

Gputax = Callable[..., subprocess.CompletedProcess[str]]


def found(**changes: object) -> Resolution:
    values = {
        "half_width_percent": 1.0,
        "ci95_percent": (-1.0, 1.0),
        "pairs": 40,
        "seconds": 60.0,
        "contains_zero": True,
    }
    return Resolution.model_validate({**values, **changes})


def test_the_time_grows_with_the_square_of_the_sharpness() -> None:
    assert minutes_for(found(), 1.0) == 1.0
    assert minutes_for(found(), 0.25) == 16.0


def test_the_sentences_name_the_budgets_that_a_width_decides() -> None:
    lines = sentences(found(), "bare", "resnet50", "onnx")
    assert lines[0] == "A/A of resnet50 (onnx) in bare: ±1.0 % from 40 pairs in 60 s"
    assert "decides a budget of 1 %) takes about 16 min" in lines[3]
    assert "disturbs" in sentences(found(contains_zero=False), "bare", "resnet50", "onnx")[-1]


@pytest.mark.parametrize(("option", "value"), [("--env", "bear"), ("--workload", "resnet5"), ("--engine", "onxx")])
def test_mistakes(gputax: Gputax, option: str, value: str) -> None:
    done = gputax("doctor", "--resolution", option, value)
    assert done.returncode == 2
    assert "did you mean" in done.stderr
