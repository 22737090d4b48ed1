"""Whole commands against real servers on loopback: what is recorded, what faults become, and where the key never is."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputax.results.store import read_samples
from tests.standins.infer_grpc import InferServer
from tests.standins.model_server import Behaviour, ModelServer

Gputax = Callable[..., subprocess.CompletedProcess[str]]
KEY = "sk-not-for-anyone"
FAST = ("--accept-disturbed", "--out", "o")


def record_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "o/benchmark_results.json").read_text())
    return found


def test_a_run_records_tokens_definitions_goodput_and_no_key(gputax: Gputax, tiny_suite: str, tmp_path: Path) -> None:
    with ModelServer(Behaviour(ttft_s=0.02, tpot_s=0.002, key=KEY)) as server:
        engine = f"openai:{server.url},slo_ttft_ms=60000,slo_tpot_ms=60000"
        done = gputax(
            "run", "--engine", engine, "--output-tokens", "6", "--qps", "40", "--bound-ms", "60000", "--suite",
            tiny_suite, *FAST, OPENAI_API_KEY=KEY,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = record_of(tmp_path)
    (cell,) = record["benchmarks"]
    assert record["device_label"] == "server, device unknown"
    assert cell["device"] == "server"
    assert cell["workload"].startswith("chat-128-6-tokens@")
    assert cell["tokens"] == 6 * cell["queries"]
    assert cell["ttft_p50_ms"] >= 20.0
    assert cell["tpot_p50_ms"] > 0.5
    assert cell["token_definitions"]["clock_start"] == "scheduled"
    assert cell["token_definitions"]["token_source"] == "usage"
    assert (cell["error_rate"], cell["error_bound"], cell["failed_requests"]) == (0.0, 0.01, 0)
    assert cell["goodput_bounds"] == {"latency": 60000.0, "ttft": 60000.0, "tpot": 60000.0}
    assert cell["goodput_per_sec"] == pytest.approx(cell["throughput_samples_per_sec"])
    samples = read_samples(tmp_path / "o" / cell["samples_file"])
    chunks = read_samples(tmp_path / "o" / cell["tokens_file"])
    assert len(chunks["token_ns"]) == 6 * len(samples["end_ns"])
    assert "TTFT p50/p90/p99" in done.stdout
    written = [path.read_bytes() for path in (tmp_path / "o").rglob("*") if path.is_file()]
    assert all(KEY.encode() not in data for data in (*written, done.stdout.encode(), done.stderr.encode()))


def test_failed_requests_are_data_and_too_many_make_the_cell_invalid(
    gputax: Gputax, tiny_suite: str, tmp_path: Path
) -> None:
    with ModelServer(Behaviour(fault="500", fault_every=20)) as server:
        engine = f"openai:{server.url},output_tokens=2"
        done = gputax("run", "--engine", engine, "--qps", "300", "--suite", tiny_suite, *FAST)
    assert done.returncode == 5, done.stdout + done.stderr
    (cell,) = record_of(tmp_path)["benchmarks"]
    assert cell["valid"] is False
    assert cell["failed_requests"] > 0
    assert cell["error_rate"] == pytest.approx(cell["failed_requests"] / (cell["failed_requests"] + cell["queries"]))
    log = next((tmp_path / "o/cells").glob("*/failed_requests.tsv")).read_text()
    assert log.startswith("500\t")
    assert "requests failed" in done.stdout


def test_two_servers_in_pairs_and_the_slower_one_is_found(gputax: Gputax, tmp_path: Path) -> None:
    with ModelServer(Behaviour(ttft_s=0.005)) as one, ModelServer(Behaviour(ttft_s=0.055)) as other:
        done = gputax(
            "duet", "bare", "bare", "--engine", f"openai:{one.url}", "--engine-b", f"openai:{other.url}",
            "--output-tokens", "3", "--max-time", "20", "--no-control", *FAST,
        )  # fmt: skip
    assert done.returncode in (6, 7), done.stderr
    comparison = json.loads((tmp_path / "o/comparison.json").read_text())
    rows = {row["metric"]: row for row in comparison["metrics"]}
    # A busy machine may have too few pairs for a percentile; the mean always has a value.
    assert rows["latency_mean"]["base_value"] >= 5.0
    assert rows["latency_mean"]["other_value"] >= 55.0
    assert {"ttft_p50", "tpot_p50", "itl_p99"} <= set(rows)
    assert (read_samples(tmp_path / "o/ttft-b.parquet")["ttft_ns"] >= 50_000_000).all()
    assert comparison["settings"]["token_definitions"]["clock_start"] == "sent"
    assert [side["label"] for side in comparison["sides"]] == [f"127.0.0.1:{each.port}" for each in (one, other)]


def test_tenants_share_a_server(gputax: Gputax, tmp_path: Path) -> None:
    with ModelServer(Behaviour(infer_s=0.002)) as server:
        done = gputax(
            "share", "--engine", f"kserve:{server.url},model=tiny", "--tech", "cpu-shared", "--tenants", "1,2",
            "--repeats", "1", "--window", "1s", "--warmup", "0.2s", *FAST,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    sharing = json.loads((tmp_path / "o/sharing.json").read_text())
    assert [cell["tenants"] for cell in sharing["cells"]] == [1, 2]


def test_the_same_model_over_grpc(gputax: Gputax, tiny_suite: str, tmp_path: Path) -> None:
    with InferServer(infer_s=0.001) as server:
        engine = f"kserve:{server.url},model=tiny"
        done = gputax("run", "--engine", engine, "--scenario", "single-stream", "--suite", tiny_suite, *FAST)
    assert done.returncode == 0, done.stdout + done.stderr
    (cell,) = record_of(tmp_path)["benchmarks"]
    assert (cell["provider"], cell["device"]) == ("gRPC", "server")
    assert cell["latency_p50_ms"] >= 1.0
    assert cell["ttft_p50_ms"] is None


def test_a_server_that_is_not_there_ends_with_the_next_command(gputax: Gputax, tiny_suite: str) -> None:
    with ModelServer() as server:
        pass
    done = gputax("run", "--engine", f"openai:{server.url}", "--suite", tiny_suite, *FAST)
    assert done.returncode == 3, done.stderr
    assert "nothing answers at" in done.stderr
    assert "start the server" in done.stderr
