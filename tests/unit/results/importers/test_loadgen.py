"""LoadGen's output, in the shape of real logs of LoadGen 6.0.17."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gputax.errors import ResultsError
from gputax.results.importers.detect import read_source
from gputax.results.importers.source import SourceCell

SERVER_SUMMARY = """================================================
MLPerf Results Summary
================================================
SUT name : PyFastSUT
Scenario : Server
Mode     : PerformanceOnly
Completed samples per second    : 1496.65
Result is : VALID
  Performance constraints satisfied : Yes
  Min duration satisfied : Yes
  Early stopping satisfied: Yes
Early Stopping Result:
 * Run successful.

================================================
Additional Stats
================================================
Scheduled samples per second : 1503.85
Min latency (ns)                : 962920
Max latency (ns)                : 10511796
Mean latency (ns)               : 2733019
50.00 percentile latency (ns)   : 2398308
90.00 percentile latency (ns)   : 4269136
99.00 percentile latency (ns)   : 9242830
99.90 percentile latency (ns)   : 10511796

================================================
Test Parameters Used
================================================
samples_per_query : 1
target_qps : 1485.73
target_latency (ns): 15000000

No warnings encountered during test.

No errors encountered during test.
"""
INVALID_SUMMARY = (
    SERVER_SUMMARY.replace("VALID", "INVALID")
    .replace("Early Stopping Result:\n * Run successful.", "Recommendations:\n * Reduce target QPS.")
    .replace("No errors encountered", "2 ERRORS encountered")
)
OFFLINE_SUMMARY = """MLPerf Results Summary
Scenario : Offline
Samples per second: 1815.98
Result is : VALID
99.00 percentile latency (ns)   : 662962393
"""
STREAM = {
    "loadgen_version": "6.0.17 @ d6147c7eb7", "effective_scenario": "SingleStream", "effective_samples_per_query": 1,
    "effective_target_latency_percentile": 0.9, "effective_target_qps": 1787.5, "result_validity": "VALID",
    "result_query_count": 700, "result_qps_with_loadgen_overhead": 709.722, "result_mean_latency_ns": 1397920,
    "result_50.00_percentile_latency_ns": 1127245, "result_90.00_percentile_latency_ns": 1863200,
    "result_95.00_percentile_latency_ns": 3435416, "result_99.00_percentile_latency_ns": 6454185,
}  # fmt: skip


def detail(values: dict[str, object]) -> str:
    lines = [{"key": key, "value": value, "metadata": {"is_error": False}} for key, value in values.items()]
    return "".join(f":::MLLOG {json.dumps(line)}\n" for line in lines)


def read_one(path: Path) -> SourceCell:
    source = read_source(path)
    assert source.format == "loadgen"
    (cell,) = source.cells
    return cell


def test_the_detail_log_comes_first(tmp_path: Path) -> None:
    (tmp_path / "mlperf_log_detail.txt").write_text(detail(STREAM))
    (tmp_path / "mlperf_log_summary.txt").write_text(SERVER_SUMMARY)
    cell = read_one(tmp_path)
    assert (cell.scenario, cell.batch_size, cell.valid) == ("single-stream", 1, True)
    assert cell.metrics["latency_p99"] == 6.454185
    assert cell.metrics["throughput"] == 709.722
    assert cell.conditions["loadgen_version"] == "6.0.17"
    assert "target_qps" not in cell.conditions, "a stream's is only LoadGen's guess at its speed"


def test_a_summary_alone_is_enough(tmp_path: Path) -> None:
    (tmp_path / "mlperf_log_summary.txt").write_text(SERVER_SUMMARY)
    cell = read_one(tmp_path)
    assert (cell.scenario, cell.batch_size, cell.valid) == ("server", None, True)
    assert dict(cell.metrics) == {
        "throughput": 1496.65, "latency_mean": 2.733019, "latency_p50": 2.398308, "latency_p90": 4.269136,
        "latency_p99": 9.24283,
    }  # fmt: skip
    assert (cell.conditions["target_qps"], cell.conditions["latency_bound_ms"]) == (1485.73, 15.0)
    assert cell.invalid_reasons == ()
    assert cell.notices == ()


def test_an_invalid_run_is_marked_with_its_reasons(tmp_path: Path) -> None:
    (tmp_path / "mlperf_log_summary.txt").write_text(INVALID_SUMMARY)
    cell = read_one(tmp_path)
    assert not cell.valid
    assert cell.invalid_reasons == ("Reduce target QPS.",)
    assert cell.notices[0].text == "LoadGen logged 2 errors"


def test_offline_has_a_throughput_and_no_latency(tmp_path: Path) -> None:
    (tmp_path / "mlperf_log_summary.txt").write_text(OFFLINE_SUMMARY)
    assert dict(read_one(tmp_path).metrics) == {"throughput": 1815.98}


def test_late_queries_become_a_share(tmp_path: Path) -> None:
    values = {**STREAM, "effective_scenario": "Server", "result_overlatency_query_count": 7}
    (tmp_path / "mlperf_log_detail.txt").write_text(detail(values))
    assert read_one(tmp_path).metrics["over_bound_share"] == pytest.approx(1.0)


def test_percentiles_of_too_few_queries_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "mlperf_log_detail.txt").write_text(detail({**STREAM, "result_query_count": 100}))
    cell = read_one(tmp_path)
    assert set(cell.metrics) == {"throughput", "latency_mean", "latency_p50", "latency_p90"}
    assert "latency_p99 needs 662 queries, there are 100" in cell.notices[1].text


def test_multi_stream_counts_its_own_samples_per_query(tmp_path: Path) -> None:
    values = {
        **STREAM, "effective_scenario": "MultiStream", "effective_samples_per_query": 4,
        "result_50.00_percentile_per_query_latency_ns": 5_000_000,
    }  # fmt: skip
    (tmp_path / "mlperf_log_detail.txt").write_text(detail(values))
    cell = read_one(tmp_path)
    assert (cell.batch_size, cell.metrics["latency_p50"]) == (4, 5.0)


def test_a_log_that_names_no_scenario_is_unknown_and_not_unequal(tmp_path: Path) -> None:
    values = {key: value for key, value in STREAM.items() if key != "effective_scenario"}
    (tmp_path / "mlperf_log_detail.txt").write_text(detail(values))
    cell = read_one(tmp_path)
    assert cell.scenario == "unknown"
    assert "scenario" not in cell.conditions
    assert "judged_percentile" not in cell.conditions


def test_a_saved_log_may_hold_several_summaries(tmp_path: Path) -> None:
    path = tmp_path / "baseline.log"
    lines = ("Starting\n" + SERVER_SUMMARY + "next\n" + OFFLINE_SUMMARY).splitlines()
    path.write_text("\n".join(f"2026-01-01T00:00:00.000000001Z {line}" for line in lines))
    source = read_source(path)
    assert (source.format, source.label) == ("loadgen", "bare")
    assert [cell.scenario for cell in source.cells] == ["server", "offline"]
    assert source.cells[0].metrics["latency_p99"] == 9.24283


def test_a_detail_log_may_be_named_itself(tmp_path: Path) -> None:
    path = tmp_path / "my_detail.txt"
    path.write_text(detail(STREAM))
    assert read_one(path).scenario == "single-stream"


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("mlperf_log_detail.txt", detail(STREAM)[:400], "has no result"),
        ("mlperf_log_detail.txt", ":::MLLOG {", "has no result"),
        ("mlperf_log_detail.txt", "", "the file is empty"),
        ("mlperf_log_detail.txt", "\x00\x01\x02", "binary"),
        ("mlperf_log_summary.txt", SERVER_SUMMARY[:200], "summary has no result"),
        ("mlperf_log_summary.txt", "No warnings encountered during test.", "no LoadGen summary"),
    ],
)
def test_cut_short_empty_and_binary_logs(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ResultsError, match=complaint) as raised:
        read_source(tmp_path)
    assert name in raised.value.where
