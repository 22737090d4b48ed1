"""The files of load generators are read by definition: each importer finds the times that the server kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputax.errors import ResultsError
from gputax.plan.token_tools import (
    EACH_CHUNK_GAP,
    FIRST_EXCLUDED,
    FIRST_INCLUDED,
    SCHEDULED,
    SENT,
    STARTED,
    TOOLS,
    UNCLEAR,
    guidellm_of,
    meant_by_gputax,
)
from gputax.plan.tokens import ITL, LATENCY, TPOT, TTFT
from gputax.results.importers.detect import read_source
from gputax.results.importers.source import Source
from tests.standins.token_server import MODEL, SCHEDULE

FILES = Path(__file__).parent / "token_tools"
WITH_REQUESTS = ["aiperf", "aiperf/profile_export.jsonl", "inference-perf", "guidellm", "vllm-bench.json"]
SUMMARIES = [
    "aiperf/profile_export_aiperf.json",
    "inference-perf/summary_lifecycle_metrics.json",
    "vllm-bench-summary.json",
    "llm-d-report.yaml",
]
# What a client adds at the median: it opens connections, parses, and shares two cores with the server.
CLIENT_MS = 6.0


@pytest.mark.parametrize("name", [*WITH_REQUESTS, *SUMMARIES])
def test_every_importer_finds_the_times_that_the_server_kept(name: str) -> None:
    metrics = _only(name).metrics
    assert SCHEDULE.first_ms <= metrics["ttft_p50"] <= SCHEDULE.first_ms + CLIENT_MS
    assert metrics["tpot_p50"] == pytest.approx(SCHEDULE.per_token_ms, rel=0.01)
    assert metrics["latency_p50"] == pytest.approx(SCHEDULE.at_ms[-1], abs=CLIENT_MS)
    assert metrics["tokens_per_s"] == pytest.approx(4 * SCHEDULE.tokens / (SCHEDULE.at_ms[-1] / 1000.0), rel=0.06)
    if "guidellm" in name:
        assert "itl_p50" not in metrics  # it keeps no single gaps; its ITL is the time per token
    else:
        assert metrics["itl_p50"] == pytest.approx(SCHEDULE.gap_ms, rel=0.02)
    if "inference-perf/summary" not in name and "guidellm" not in name and "llm-d" not in name:
        assert metrics["itl_p99"] == pytest.approx(SCHEDULE.long_gap_ms, rel=0.02)


@pytest.mark.parametrize("name", WITH_REQUESTS)
def test_requests_give_samples_and_no_percentile_below_its_floor(name: str) -> None:
    cell = _only(name)
    assert cell.load_samples is not None
    samples = cell.load_samples()
    assert len(samples.begin_ns) in (70, 78)
    assert np.all(np.diff(samples.begin_ns) >= 0)
    assert np.median(samples.latency_ns) / 1e6 == pytest.approx(SCHEDULE.at_ms[-1], abs=CLIENT_MS)
    assert samples.series_ns[TTFT].size == samples.series_ns[TPOT].size == len(samples.begin_ns)
    assert "ttft_p90" in cell.metrics
    assert not {"ttft_p99", "tpot_p99", "latency_p95", "latency_p99"} & set(cell.metrics)


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_summary_has_no_samples_and_refuses_percentiles_of_too_few_requests(name: str) -> None:
    cell = _only(name)
    assert cell.load_samples is None
    assert "ttft_p90" in cell.metrics
    assert "ttft_p99" not in cell.metrics
    assert any("ttft_p99 needs 662 values" in notice.text for notice in cell.notices)


def test_a_tools_own_percentiles_agree_with_those_of_its_requests() -> None:
    """The tools interpolate, LoadGen's convention does not: with 70 requests that is less than one in a hundred."""
    for requests, summary in (
        ("aiperf/profile_export.jsonl", "aiperf/profile_export_aiperf.json"),
        ("inference-perf", "inference-perf/summary_lifecycle_metrics.json"),
    ):
        ours, theirs = _only(requests).metrics, _only(summary).metrics
        for metric in ("ttft_p50", "ttft_p90", "tpot_p50", "tpot_p90", "itl_p50", "latency_p50"):
            assert ours[metric] == pytest.approx(theirs[metric], rel=0.01), metric


def test_the_load_and_the_model_are_named() -> None:
    for name in ("aiperf", "inference-perf", "guidellm", "vllm-bench.json"):
        assert _only(name).title == f"{MODEL} concurrency 4"
    assert read_source(FILES / "aiperf").measured == "2026-11-17T15:30:06"
    assert read_source(FILES / "guidellm").measured_by == "file"


def test_names_are_mapped_by_what_they_count() -> None:
    meant = {tool.title: tool.meant() for tool in TOOLS}
    assert meant["aiperf"][TPOT].called == "ITL"
    assert meant["aiperf"][TPOT].definition is FIRST_EXCLUDED
    assert meant["aiperf"][ITL].called == "inter chunk latency"
    assert meant["guidellm"][TPOT].called == "ITL"
    assert meant["guidellm"][ITL].definition is FIRST_EXCLUDED  # what it calls ITL is not a gap
    assert meant["vLLM bench serve"][ITL].definition is EACH_CHUNK_GAP
    assert meant["vLLM bench serve"][TTFT].definition is STARTED
    assert meant["guidellm"][TTFT].definition is SENT
    assert ITL not in meant["mlcommons/endpoints"]
    assert any("TPOT is not tpot" in text for text in TOOLS[2].translations)


def test_guidellms_clock_depends_on_its_version_and_its_summary_is_another_definition() -> None:
    assert guidellm_of("0.8.1", requests=True).clock is SENT
    assert guidellm_of("0.10.0", requests=True).clock is SENT
    assert guidellm_of("0.8.0", requests=True).clock is STARTED
    assert guidellm_of("", requests=True).clock is UNCLEAR
    assert guidellm_of("0.8.1", requests=False).meant()[TPOT].definition is FIRST_INCLUDED


def test_our_own_server_runs_count_from_the_schedule() -> None:
    ours = meant_by_gputax("server", {"clock_start": "scheduled", "counted": "chunk"})
    assert ours[LATENCY].definition is SCHEDULED
    assert ours[TTFT].definition is SCHEDULED
    assert ours[ITL].definition is EACH_CHUNK_GAP
    assert meant_by_gputax("single-stream", {})[LATENCY].definition is SENT


def test_guidellm_without_its_requests_has_no_time_per_token(tmp_path: Path) -> None:
    data = json.loads((FILES / "guidellm/benchmarks.json").read_text())
    del data["benchmarks"][0]["requests"]
    cell = _read(tmp_path, "summary.json", data).cells[0]
    assert "tpot_p50" not in cell.metrics
    assert cell.metrics["ttft_p50"] == pytest.approx(201.5, abs=1.0)
    assert cell.meant[TPOT].definition is FIRST_INCLUDED


def test_a_sample_of_guidellms_requests_is_told(tmp_path: Path) -> None:
    data = json.loads((FILES / "guidellm/benchmarks.json").read_text())
    data["benchmarks"][0]["requests"]["successful"] = data["benchmarks"][0]["requests"]["successful"][:20]
    cell = _read(tmp_path, "sampled.json", data).cells[0]
    assert [notice.text for notice in cell.notices if notice.code == "sampled-requests"] == [
        "the file keeps 20 of 70 requests: figures are of these"
    ]


def test_endpoints_directory_gives_times_from_its_events_and_tokens_from_its_summary(tmp_path: Path) -> None:
    source = read_source(endpoints_directory(tmp_path, 80))
    (cell,) = source.cells
    assert source.format == "mlperf-endpoints"
    assert cell.title == "concurrency 4"
    assert cell.metrics["ttft_p50"] == pytest.approx(200.0)
    assert cell.metrics["itl_p50"] == pytest.approx(20.0)
    assert cell.metrics["itl_p99"] == pytest.approx(120.0)
    assert cell.metrics["tpot_p50"] == pytest.approx(SCHEDULE.per_token_ms)
    assert cell.load_samples is not None
    assert cell.load_samples().series_ns[ITL].size == 80 * 15
    # A warm-up before the tracking and a sample without an answer are in no figure.
    assert len(cell.load_samples().begin_ns) == 80


def test_an_interrupted_endpoints_run_is_invalid(tmp_path: Path) -> None:
    directory = endpoints_directory(tmp_path, 80)
    path = directory / "performance/result_summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "state": "interrupted", "complete": False}))
    assert not read_source(directory).cells[0].valid


@pytest.mark.parametrize(("tool", "has"), [("vllm-benchmark", True), ("guidellm", False)])
def test_an_llmd_report_means_what_its_tool_means(tmp_path: Path, tool: str, has: bool) -> None:
    """Its converter puts guidellm's TPOT, which counts the first token, where others' TPOT without it stands."""
    cell = _read(tmp_path, "report.json", llmd_report(tool)).cells[0]
    assert ("tpot_p50" in cell.metrics) is has
    assert cell.meant[TPOT].definition is (FIRST_EXCLUDED if has else FIRST_INCLUDED)
    assert cell.metrics["ttft_p50"] == pytest.approx(200.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": "0.3"}, "a benchmark report of version 0.3; gputax reads 0.1 and 0.2"),
        ({"scenario": {"load": {"name": "my-own"}}}, "a benchmark report of my-own"),
        ({"scenario": {"load": {}}}, "a benchmark report of a tool that it does not name"),
        ({"metrics": {"latency": {}}}, "does not say how many requests"),
    ],
)
def test_an_llmd_report_that_cannot_be_understood_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(ResultsError, match=said):
        _read(tmp_path, "report.json", {**llmd_report("guidellm"), **change})


def test_a_cut_file_is_refused_with_its_line(tmp_path: Path) -> None:
    whole = (FILES / "aiperf/profile_export.jsonl").read_text()
    cut = tmp_path / "profile_export.jsonl"
    cut.write_text(whole[: len(whole) // 2])
    with pytest.raises(ResultsError, match=r"line 3\d is not valid JSON") as caught:
        read_source(cut)
    assert "copy it again" in caught.value.next_step
    for name in ("guidellm/benchmarks.json", "vllm-bench.json", "inference-perf/per_request_lifecycle_metrics.json"):
        text = (FILES / name).read_text()
        cut.write_text(text[: len(text) // 2])
        with pytest.raises(ResultsError, match="invalid JSON") as caught:
            read_source(cut)
        assert "truncated or edited" in caught.value.next_step
    (tmp_path / "report.yaml").write_text((FILES / "llm-d-report.yaml").read_text()[:1500] + "\n  - {")
    with pytest.raises(ResultsError, match="invalid YAML"):
        read_source(tmp_path / "report.yaml")


def test_impossible_times_are_left_out_and_told(tmp_path: Path) -> None:
    data = json.loads((FILES / "vllm-bench.json").read_text())
    data["ttfts"][3], data["ttfts"][4], data["itls"][5][0] = float("nan"), -1.0, None
    cell = _read(tmp_path, "nan.json", data).cells[0]
    assert cell.load_samples is not None
    assert len(cell.load_samples().begin_ns) == 67
    assert any("3 requests with a time that is negative or no number" in notice.text for notice in cell.notices)
    assert all(np.isfinite(value) for value in cell.metrics.values())


def test_failed_requests_are_in_no_figure(tmp_path: Path) -> None:
    data = json.loads((FILES / "vllm-bench.json").read_text())
    data["errors"][0], data["ttfts"][0], data["failed"] = "refused", 0.0, 1
    cell = _read(tmp_path, "failed.json", data).cells[0]
    assert cell.load_samples is not None
    assert len(cell.load_samples().begin_ns) == 69
    assert any(notice.code == "failed-requests" for notice in cell.notices)


def test_a_file_without_a_figure_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="a file of aiperf without a single figure"):
        _read(tmp_path, "empty.json", {"schema_version": "1.4", "aiperf_version": "0.13.0"})
    (tmp_path / "x.jsonl").write_text('{"metadata": {"request_start_ns": 1}, "metrics": {}}\n')
    with pytest.raises(ResultsError, match="without request_latency"):
        read_source(tmp_path / "x.jsonl")


def test_several_runs_in_one_place_are_refused_with_what_to_name(tmp_path: Path) -> None:
    for name in ("run-1", "run-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "profile_export.jsonl").write_text((FILES / "aiperf/profile_export.jsonl").read_text())
    with pytest.raises(ResultsError) as caught:
        read_source(tmp_path)
    assert "run-1" in caught.value.next_step
    assert "run-2" in caught.value.next_step
    appended = tmp_path / "appended.json"
    one = (FILES / "vllm-bench-summary.json").read_text()
    appended.write_text(one + one)
    with pytest.raises(ResultsError, match="several results in one file"):
        read_source(appended)
    stages = tmp_path / "stages"
    stages.mkdir()
    for name in ("per_request", "stage_0", "stage_1"):
        text = (FILES / f"inference-perf/{name.replace('1', '0')}_lifecycle_metrics.json").read_text()
        (stages / f"{name}_lifecycle_metrics.json").write_text(text)
    with pytest.raises(ResultsError, match="2 stages"):
        read_source(stages)


def test_huge_files_are_refused_before_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "profile_export.jsonl"
    with path.open("wb") as file:
        file.truncate(300 << 20)
    with pytest.raises(ResultsError, match="larger than 256 MB"):
        read_source(path)


def test_the_page_lists_every_tool_with_the_version_that_was_read() -> None:
    page = (Path(__file__).parents[3] / "docs/formats.md").read_text()
    for tool in TOOLS:
        assert f"| {tool.title} {tool.read_in} | " in page


def endpoints_directory(parent: Path, count: int) -> Path:
    """Write a report directory of mlcommons/endpoints with exact times, by the format in its source."""
    directory = parent / "endpoints"
    (directory / "performance").mkdir(parents=True)
    events: list[dict[str, Any]] = [_event("session.started", 0)]
    events += _sample("warm-up", 1_000)
    events.append(_event("session.start_performance_tracking", 10**9))
    for number in range(count):
        events += _sample(f"s{number}", 2 * 10**9 + number * 160_000_000)
    events.append({**_event("sample.issued", 10**11), "sample_uuid": "lost"})
    events.append(_event("session.stop_performance_tracking", 2 * 10**11))
    lines = [json.dumps(event) for event in sorted(events, key=lambda event: int(event["timestamp_ns"]))]
    (directory / "events.jsonl").write_text("\n".join(lines) + "\n")
    per_token_ns = SCHEDULE.per_token_ms * 1e6
    summary = {
        "version": "0.5.0", "n_samples_issued": count, "n_samples_completed": count, "n_samples_failed": 0,
        "state": "complete", "complete": True, "qps": 6.25, "tps": 100.0,
        "ttft": {"percentiles": {"50": 2e8, "90": 2e8, "99": 2e8}},
        "tpot": {"percentiles": {"50.0": per_token_ns, "90.0": per_token_ns, "99.0": per_token_ns}},
        "latency": {"percentiles": {"50": 6e8}},
        "run_config": {"load_pattern": {"type": "concurrency", "target_concurrency": 4}},
    }  # fmt: skip
    (directory / "performance/result_summary.json").write_text(json.dumps(summary))
    return directory


def _sample(name: str, issued_ns: int) -> list[dict[str, Any]]:
    times = [issued_ns + int(at_ms * 1e6) for at_ms in SCHEDULE.at_ms]
    kinds = ["sample.recv_first", *["sample.recv_non_first"] * (len(times) - 1)]
    events = [_event("sample.issued", issued_ns), *map(_event, kinds, times), _event("sample.complete", times[-1])]
    return [{**event, "sample_uuid": name} for event in events]


def _event(kind: str, at_ns: int) -> dict[str, Any]:
    return {"event_type": kind, "timestamp_ns": at_ns, "sample_uuid": "", "conversation_id": "", "data": None}


def llmd_report(tool: str) -> dict[str, Any]:
    """Return a benchmark report 0.1 as llm-d's converter fills it from a tool's names."""
    per_token = SCHEDULE.per_token_with_first_ms if tool == "guidellm" else SCHEDULE.per_token_ms
    times = {
        "time_to_first_token": (SCHEDULE.first_ms, "ms"),
        "time_per_output_token": (per_token, "ms/token"),
        "inter_token_latency": (SCHEDULE.gap_ms, "ms/token"),
        "request_latency": (SCHEDULE.at_ms[-1] / 1e3, "s"),
    }
    return {
        "version": "0.1",
        "scenario": {"model": {"name": MODEL}, "load": {"name": tool}},
        "metrics": {
            "requests": {"total": 100, "failures": 0},
            "latency": {name: {"units": unit, "mean": at, "p50": at, "p90": at} for name, (at, unit) in times.items()},
            "throughput": {"output_tokens_per_sec": 100.0, "requests_per_sec": 6.25},
        },
    }


def _only(name: str) -> Any:
    (cell,) = read_source(FILES / name).cells
    return cell


def _read(directory: Path, name: str, data: Any) -> Source:
    (directory / name).write_text(json.dumps(data))
    return read_source(directory / name)
