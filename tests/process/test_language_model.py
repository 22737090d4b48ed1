"""A language model from the command line: real LoadGen, tokens with known delays, and the real decoder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Gputax

SYNTHETIC = ("--workload", "llm-tiny:output=5", "--engine", "synthetic:latency_us=2000,token_us=500")


def test_tokens_are_found_as_programmed_and_as_loadgen_counts_them(
    gputax: Gputax, tiny_suite: str, tmp_path: Path
) -> None:
    done = gputax(
        "run", *SYNTHETIC, "--scenario", "single-stream,server,offline", "--batch", "2", "--suite", tiny_suite,
        "--out", str(tmp_path / "out"), "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for cell in json.loads(done.stdout)["benchmarks"]:
        assert cell["workload"] == "llm-tiny:output=5"
        assert cell["tokens"] == 5 * cell["samples"]
        # A busy machine only adds to programmed delays.
        assert cell["ttft_p50_ms"] >= 2.0
        assert cell["tpot_p50_ms"] >= 0.49
        theirs = cell["loadgen"]["metrics"]
        rate = theirs.get("result_completed_tokens_per_second") or theirs["result_tokens_per_second"]
        assert cell["tokens_per_sec"] == pytest.approx(rate, rel=0.2)
        assert (tmp_path / "out" / cell["tokens_file"]).exists()


def test_a_duet_pairs_the_times_of_tokens(gputax: Gputax, tmp_path: Path) -> None:
    slower = "synthetic:latency_us=2000,token_us=1500"
    done = gputax(
        "duet", "bare", "bare", *SYNTHETIC, "--engine-b", slower, "--max-time", "8", "--out", str(tmp_path / "out"),
        "--json",
    )  # fmt: skip
    rows = {row["metric"]: row for row in json.loads(done.stdout)["metrics"]}
    assert {"latency_p50", "ttft_p50", "tpot_p50"} <= rows.keys(), done.stderr
    # Too few requests on a busy machine: then there is a row without a value.
    assert (rows["tpot_p50"]["other_value"] or 1.5) > 1.4


def test_the_decoder_runs_in_every_scenario(
    gputax: Gputax, tiny_suite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUTAX_MODELS", str(tmp_path / "models"))
    done = gputax(
        "run", "--workload", "llm-tiny:layers=1,hidden=64,vocabulary=64,output=3", "--scenario",
        "single-stream,server,offline,multi-stream,saturate", "--batch", "2", "--suite", tiny_suite, "--device", "cpu",
        "--out", str(tmp_path / "out"), "--json",
    )  # fmt: skip
    cells = json.loads(done.stdout)["benchmarks"]
    assert {cell["scenario"] for cell in cells} == {
        "single_stream", "server", "offline", "multi_stream", "saturate",
    }, done.stderr  # fmt: skip
    assert all(cell["tokens"] == 3 * cell["samples"] and cell["ttft_p50_ms"] > 0 for cell in cells)
