"""LoadGen's detail log, from hand-made lines."""

from __future__ import annotations

import json

import pytest

from gputax.errors import ResultsError
from gputax.results.importers.loadgen import parse_detail


def line(key: str, value: object, is_error: bool = False) -> str:
    return ":::MLLOG " + json.dumps({"key": key, "value": value, "metadata": {"is_error": is_error}})


def test_a_valid_run() -> None:
    text = "\n".join(
        [
            line("loadgen_version", "6.0.17"),
            line("result_validity", "VALID"),
            line("result_min_duration_met", True),
            line("result_99.00_percentile_latency_ns", 229451),
            line("early_stopping_latency_ss", 5000),
        ]
    )
    log = parse_detail(text)
    assert log.valid
    assert log.version == "6.0.17"
    assert log.percentile_ns("99.00") == 229451.0
    assert log.metrics == {"result_99.00_percentile_latency_ns": 229451.0, "early_stopping_latency_ss": 5000.0}


def test_an_invalid_run_keeps_every_reason() -> None:
    text = "\n".join(
        [
            line("result_validity", "INVALID"),
            line("result_invalid_reason", "Reduce target QPS"),
            line("result_invalid_reason", "Min duration not met"),
            line("error_runtime", "it broke", is_error=True),
        ]
    )
    log = parse_detail(text)
    assert not log.valid
    assert log.invalid_reasons == ("Reduce target QPS", "Min duration not met")
    assert log.errors == 1


@pytest.mark.parametrize("text", ["", "garbage", ":::MLLOG {", line("loadgen_version", "6"), "\x00\xff"])
def test_a_log_without_a_result_is_an_error(text: str) -> None:
    with pytest.raises(ResultsError, match="has no result"):
        parse_detail(text, "somewhere")


def test_a_line_cut_short_does_not_hide_the_rest() -> None:
    assert parse_detail(':::MLLOG {"key": "x", "val\n' + line("result_validity", "VALID")).valid
