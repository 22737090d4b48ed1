"""Our own directories as sources: samples that are read late, and every way in which they can be broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gputax import api
from gputax.errors import ResultsError
from gputax.measure.run.documents import micro_text
from gputax.results.importers.detect import read_source
from gputax.results.importers.source import CellSamples, Source
from gputax.results.reading import RUN
from gputax.results.store import read_document

MakeRun = Callable[..., Path]
STREAM = {
    "start_ns": np.array([30, 10, 20], dtype=np.int64),
    "end_ns": np.array([39, 15, 27], dtype=np.int64),
    "samples": np.array([1, 1, 1], dtype=np.int64),
}


def write_samples(path: Path, columns: dict[str, Any]) -> None:
    pq.write_table(pa.table(columns), path)


def samples_of(source: Source) -> CellSamples:
    load = source.cells[0].load_samples
    assert load is not None
    return load()


def test_a_run_with_its_samples_in_time_order(make_run: MakeRun) -> None:
    source = read_source(make_run(columns=STREAM))
    cell = source.cells[0]
    assert (source.format, source.label, source.device) == ("gputax", "bare", "cpu")
    assert (cell.workload, cell.scenario, cell.batch_size, cell.tenants) == ("resnet50", "single-stream", 1, 1)
    assert cell.metrics["latency_p99"] == 13.0
    samples = samples_of(source)
    assert samples.begin_ns.tolist() == [10, 20, 30]
    assert samples.latency_ns.tolist() == [5, 7, 9]


def test_server_latency_counts_from_the_schedule(make_run: MakeRun) -> None:
    columns = {"scheduled_ns": np.array([10, 20]), "issued_ns": np.array([12, 21]), "end_ns": np.array([15, 40])}
    samples = samples_of(read_source(make_run(columns=columns, benchmark={"scenario": "server"})))
    assert samples.latency_ns.tolist() == [5, 20]
    assert samples.samples.tolist() == [1, 1]


# Requests 0 and 2 succeed with two tokens each, request 1 fails after its first.
REQUESTS = {
    "start_ns": np.array([10, 20, 30]), "end_ns": np.array([100, 50, 230]), "samples": np.ones(3, np.int64),
    "status": np.array([0, 500, 0]), "first_token_ns": np.array([40, 25, 90]), "last_token_ns": np.array([90, 25, 190]),
    "tokens": np.array([2, 1, 2]),
}  # fmt: skip
TOKENS = {"token_query": np.array([0, 0, 1, 2, 2]), "token_ns": np.array([40, 90, 25, 90, 190])}
TOKENS_FILE = "samples/cell-tokens.parquet"


def test_failed_requests_are_in_no_latency(make_run: MakeRun) -> None:
    samples = samples_of(read_source(make_run(columns=REQUESTS)))
    assert samples.latency_ns.tolist() == [90, 200]
    failed = REQUESTS | {"status": np.array([500, 500, 500])}
    with pytest.raises(ResultsError, match="no request succeeded"):
        samples_of(read_source(make_run(columns=failed)))


def test_the_times_of_tokens_come_from_their_own_file(make_run: MakeRun) -> None:
    directory = make_run(columns=REQUESTS, benchmark={"tokens_file": TOKENS_FILE})
    write_samples(directory / TOKENS_FILE, TOKENS)
    found = samples_of(read_source(directory)).series_ns
    assert {name: values.tolist() for name, values in found.items()} == {
        "ttft": [30.0, 60.0], "tpot": [50.0, 100.0], "itl": [50.0, 100.0],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        ({"token_query": np.array([7]), "token_ns": np.array([40])}, "requests that the samples do not have"),
        ({"token_query": np.array([-1]), "token_ns": np.array([40])}, "requests that the samples do not have"),
        ({"token_query": np.array([0])}, "no column token_ns"),
        (None, "samples file is missing"),
    ],
)
def test_a_broken_file_of_tokens_is_refused(make_run: MakeRun, tokens: dict[str, Any] | None, text: str) -> None:
    directory = make_run(columns=REQUESTS, benchmark={"tokens_file": TOKENS_FILE})
    if tokens is not None:
        write_samples(directory / TOKENS_FILE, tokens)
    with pytest.raises(ResultsError, match=text):
        samples_of(read_source(directory))


def test_a_token_before_its_request_is_refused(make_run: MakeRun) -> None:
    early = REQUESTS | {"first_token_ns": np.array([5, 25, 90])}
    with pytest.raises(ResultsError, match="before their request"):
        samples_of(read_source(make_run(columns=early)))


def test_samples_are_not_read_before_they_are_needed(make_run: MakeRun) -> None:
    source = read_source(make_run())
    with pytest.raises(ResultsError, match="samples file is missing"):
        samples_of(source)


def test_the_record_may_be_named_itself(make_run: MakeRun) -> None:
    directory = make_run(columns=STREAM)
    source = read_source(directory / "benchmark_results.json")
    assert samples_of(source).begin_ns.size == 3


def test_conditions_come_from_what_was_really_loaded(make_run: MakeRun) -> None:
    found = read_source(make_run()).cells[0].conditions
    expected = {
        "engine": "onnx", "engine_version": "1.31.1", "spin": False, "inter_op": 1, "inputs": "synthetic", "threads": 2,
        "device_name": "Test CPU", "governors": "performance", "kernel": "6.1", "loadgen_version": "6.0.17",
        "weights_sha256": "ab", "usable_cpus": 2,
    }  # fmt: skip
    assert {name: found.get(name) for name in expected} == expected
    assert "target_qps" not in found
    assert "quota_cpus" not in found


def test_a_run_on_an_emulated_hypervisor_is_known_by_it(make_run: MakeRun) -> None:
    fingerprint = {"setups": {"resnet50": {"engine": "onnx", "emulated": True}}}
    assert read_source(make_run(fingerprint=fingerprint)).cells[0].conditions["emulated"] is True


def test_a_gpu_brings_its_clocks_and_its_name_without_the_slice(make_run: MakeRun) -> None:
    gpu = {"uuid": "GPU-1", "sm_clock_max_mhz": 1590, "power_limit_w": 70.0, "mig": True, "ecc": True}
    source = read_source(
        make_run(
            benchmark={"device": "cuda"}, device="cuda", gpu_info={"name": "NVIDIA A100 80GB PCIe MIG 1g.10gb"},
            fingerprint={"gpus": [gpu], "host": {"cpu_model": "Test CPU"}},
        )
    )  # fmt: skip
    found = source.cells[0].conditions
    assert found["device_name"] == "A100 80GB PCIe"
    assert (found["gpu_uuid"], found["gpu_sm_clock_max_mhz"], found["gpu_mig"]) == ("GPU-1", 1590, True)
    assert found["cpu_model"] == "Test CPU"


@pytest.mark.parametrize(
    "fingerprint", [{}, {"setups": []}, {"setups": {"resnet50": 3}, "host": "x", "gpus": "y", "cpu_allowance": [1]}]
)
def test_a_strange_fingerprint_is_only_unknown(make_run: MakeRun, fingerprint: dict[str, Any]) -> None:
    found = read_source(make_run(fingerprint=fingerprint)).cells[0].conditions
    assert found["threads"] == 2
    assert "kernel" not in found


def test_an_unfinished_run_and_failed_cells_are_told(make_run: MakeRun) -> None:
    failure = {"cell": "resnet50-offline-b8-bare", "kind": "EngineError", "what": "broke"}
    warning = {"code": "device-auto", "text": "device auto chose cpu"}
    source = read_source(make_run(complete=False, failures=[failure], warnings=[warning]))
    assert [notice.code for notice in source.notices] == ["unfinished", "failed-cell", "device-auto"]


def test_a_run_without_a_cell_is_an_error(make_run: MakeRun) -> None:
    with pytest.raises(ResultsError, match="no cell was measured"):
        read_source(make_run(benchmarks=[]))


def test_an_invalid_run_keeps_its_reasons(make_run: MakeRun) -> None:
    verdict = {"version": "6", "valid": False, "invalid_reasons": ["too fast"]}
    cell = read_source(make_run(benchmark={"valid": False, "loadgen": verdict})).cells[0]
    assert (cell.valid, cell.invalid_reasons) == (False, ("too fast",))


@pytest.mark.parametrize(
    ("environment", "evidence", "valid"),
    [
        ("bare", {}, True),
        ("k8s+proxy", {}, False),
        ("k8s+proxy", {"active": False}, False),
        ("k8s+proxy", {"active": "yes"}, False),
        ("k8s+proxy", {"active": True}, True),
    ],
)
def test_a_layer_without_evidence_is_not_valid(
    make_run: MakeRun, environment: str, evidence: dict[str, Any], valid: bool
) -> None:
    cell = read_source(make_run(environment=environment, evidence=evidence)).cells[0]
    assert cell.valid is valid
    assert bool(cell.invalid_reasons) is not valid


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_a_number_that_is_none_is_left_out(make_run: MakeRun, value: float) -> None:
    cell = read_source(make_run(benchmark={"latency_p50_ms": value})).cells[0]
    assert "latency_p50" not in cell.metrics
    assert "skipped: latency_p50 is" in cell.notices[0].text


def test_a_record_names_no_file_outside_of_its_directory(make_run: MakeRun, tmp_path: Path) -> None:
    outside = make_run("outside", columns=STREAM) / "samples/one.parquet"
    for name in ("../outside/samples/one.parquet", str(outside)):
        source = read_source(make_run("inside", benchmark={"samples_file": name}))
        with pytest.raises(ResultsError, match="outside its directory"):
            samples_of(source)
    link = tmp_path / "inside" / "link.parquet"
    link.symlink_to(outside)
    source = read_source(make_run("inside", benchmark={"samples_file": "link.parquet"}))
    with pytest.raises(ResultsError, match="outside its directory"):
        samples_of(source)


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"start_ns": np.array([1])}, "no column end_ns"),
        ({**STREAM, "end_ns": np.array([1.5, 2.5, np.nan])}, "missing or non-integer values"),
        ({name: values[:0] for name, values in STREAM.items()}, "has no rows"),
    ],
)
def test_broken_samples_are_a_clear_error(make_run: MakeRun, columns: dict[str, np.ndarray], complaint: str) -> None:
    source = read_source(make_run(columns=columns))
    with pytest.raises(ResultsError, match=complaint):
        samples_of(source)


def test_truncated_samples_are_a_clear_error(make_run: MakeRun) -> None:
    directory = make_run(columns=STREAM)
    path = directory / "samples/one.parquet"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ResultsError, match="cannot be read"):
        samples_of(read_source(directory))


def test_hostile_names_stay_text_and_stay_short(make_run: MakeRun) -> None:
    source = read_source(
        make_run(
            benchmark={"workload": "<script>\x1b[2J", "claim": "x" * 10_000},
            environment="\u202ebare\n",
            fingerprint={"host": {"kernel": "\ud800"}, "n": float("inf")},
        )
    )
    cell = source.cells[0]
    assert cell.workload.startswith("<script>")
    assert cell.workload.isprintable()
    assert source.label.isprintable()
    assert len(cell.claim) <= 200
    json.dumps(source.fingerprint, ensure_ascii=False, allow_nan=False).encode()


def test_our_micro_text_and_our_run_of_several_operations_fit(make_run: MakeRun, record: Callable[..., Any]) -> None:
    """The text has one unnamed cell, the record one per operation: no cell of one fitted a single cell of the other."""

    def operation(name: str, **figures: float) -> dict[str, Any]:
        return {**record()["benchmarks"][0], "workload": name, "cell": name, "batch_size": 1, **figures}

    run = make_run(
        "m",
        benchmarks=[
            operation("micro:operation", throughput_samples_per_sec=7000.0, latency_p99_ms=0.2, latency_mean_ms=0.14),
            operation("micro:launch"),
            operation("micro:copy-in-100MB", bandwidth_gb_per_s=4.4),
            operation("micro:copy-out-100MB", bandwidth_gb_per_s=4.6),
        ],
    )
    text = run / "micro_results.txt"
    text.write_text(micro_text(read_document(RUN, run)))
    for words in ((text, run), (run, text)):
        comparison = api.compare(*words)
        rows = {(row.workload, row.metric): row for row in comparison.metrics}
        assert rows["micro:operation", "throughput"].overhead_percent == pytest.approx(0.0)
        assert rows["micro:operation", "latency_p99"].base_value == pytest.approx(0.2)
        assert rows["micro:copy-in-100MB", "host_to_device"].other_value == pytest.approx(4.4)
        assert rows["micro:copy-out-100MB", "device_to_host"].other_value == pytest.approx(4.6)
        assert not [row for row in comparison.metrics if row.verdict == "not comparable"]
