"""Names of language models: what they say of the size, and what is refused."""

from __future__ import annotations

import pytest

from gputax.cli.options import names
from gputax.errors import UsageError
from gputax.plan.driver import chosen_engine
from gputax.plan.language_models import DecoderSize, decoder_size, is_language_model, language_model_name
from gputax.plan.suites import load_plan
from gputax.plan.workloads import expanded, workload_facts


def test_widths_follow_from_the_hidden_size() -> None:
    size = decoder_size("llm-tiny:hidden=512")
    assert (size.heads, size.kv_heads, size.width, size.intermediate) == (16, 8, 32, 1408)
    assert decoder_size("llm-tiny") == DecoderSize().filled()


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("llm-tiny", "llm-tiny"),
        ("llm-tiny:", "llm-tiny"),
        ("llm-tiny:layers=4", "llm-tiny"),
        ("llm-tiny:output=8,layers=2", "llm-tiny:layers=2,output=8"),
        ("llm-tiny:hidden=512,heads=16", "llm-tiny:hidden=512"),
        ("llm-tiny:hidden=512,heads=8", "llm-tiny:hidden=512,heads=8"),
        ("llm-tiny:kv_heads=1", "llm-tiny:kv_heads=1"),
    ],
)
def test_one_size_has_one_name(given: str, name: str) -> None:
    assert language_model_name(given) == name
    assert decoder_size(name) == decoder_size(given)
    assert expanded((given,)) == (name,)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("llm-tiny:depth=3", "depth"),
        ("llm-tiny:layers=0", "above zero"),
        ("llm-tiny:layers=two", "above zero"),
        ("llm-tiny:layers", "above zero"),
        ("llm-tiny:hidden=100,heads=3", "3 heads"),
        ("llm-tiny:hidden=24,heads=8", "even width"),
        ("llm-tiny:heads=8,kv_heads=3", "3 keys"),
    ],
)
def test_a_bad_size_is_a_usage_error(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        workload_facts(name)


def test_a_comma_list_keeps_the_parameters_together() -> None:
    known = ("resnet50", "llm-tiny")
    assert names("resnet50,llm-tiny:layers=2,hidden=128", "workload", known) == (
        "resnet50",
        "llm-tiny:layers=2,hidden=128",
    )
    assert names("llm-tiny,resnet50", "workload", known) == ("llm-tiny", "resnet50")
    with pytest.raises(UsageError, match="hidden=128"):
        names("resnet50,hidden=128", "workload", known)


def test_only_engines_that_decode_are_taken() -> None:
    (cell,) = load_plan(workloads=["llm-tiny:output=4"], scenarios=["single-stream"])
    assert (cell.setup.workload, cell.setup.engine) == ("llm-tiny:output=4", "onnx")
    for engine in ("tinygrad", "torch"):
        with pytest.raises(UsageError, match="cannot run a language model"):
            load_plan(workloads=["llm-tiny"], scenarios=["single-stream"], engine=engine)
    assert chosen_engine("llm-tiny", "", ("bare+proxy",)) == "onnx"


def test_facts_count_the_work_of_a_request() -> None:
    facts = workload_facts("llm-tiny:prompt=1,output=1,layers=1,hidden=64,vocabulary=10")
    # One token through 64x64 (query, out), 64x32 (key, value), 3 x 64x176, and 64x10 of logits; two operations each.
    assert facts.gflop == pytest.approx(2e-9 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 176 + 640))
    assert not facts.is_mlperf_model
    assert (facts.server_bound_ms, facts.tpot_bound_ms) == (500.0, 30.0)
    assert is_language_model("llm-tiny:layers=2")
    assert not is_language_model("resnet50")
