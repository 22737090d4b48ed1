from __future__ import annotations

import pytest

from gputax.errors import UsageError
from gputax.plan.engines import ENGINES, parse_engine


def test_a_bare_name_has_all_defaults() -> None:
    assert parse_engine("onnx").options == ENGINES["onnx"].options


def test_options_take_the_type_of_their_default() -> None:
    options = parse_engine("synthetic:latency_us=1000,per_sample_us=50,jitter_us=20,seed=7").options
    assert options["latency_us"] == 1000.0
    assert options["seed"] == 7
    assert isinstance(options["seed"], int)
    assert parse_engine("onnx:spin=off").options["spin"] is False


@pytest.mark.parametrize(
    ("text", "complaint", "hint"),
    [
        ("onxx", "unknown engine 'onxx'", "did you mean 'onnx'?"),
        ("synthetic:latncy_us=1", "unknown option of engine synthetic 'latncy_us'", "did you mean 'latency_us'?"),
        ("synthetic:latency_us", "has no value", "synthetic:latency_us=VALUE"),
        ("synthetic:latency_us=fast", "is not a number", ""),
        ("synthetic:latency_us=nan", "is not a number", ""),
        ("synthetic:latency_us=inf", "is not a number", ""),
        ("synthetic:latency_us=-1", "is negative", ""),
        ("onnx:spin=perhaps", "neither true nor false", ""),
        ("onnx:provider=rocm", "unknown value of onnx option provider", "known: auto, cpu, cuda, tensorrt"),
    ],
)
def test_mistakes_are_usage_errors_that_name_the_way_out(text: str, complaint: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_engine(text)
    assert complaint in raised.value.what
    assert hint in raised.value.next_step
