"""Results as people keep them in texts, in the shapes of the users' own files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gputax.errors import ResultsError
from gputax.results.importers.detect import read_source
from gputax.results.importers.source import Source

KEY_METRICS = """# Bare metal
**File**: `baseline.txt`
**Environment**: Direct GPU access, no virtualization
**Date**: 2025-12-15

**Key Metrics**:
- Throughput: 7,043 ops/sec
- Average Latency: 0.15 ms (150 microseconds)
- p99 Latency: 0.201 ms
- Memory Bandwidth: 4.42 GB/s (H2D), 4.61 GB/s (D2H)
"""
PROGRAM_OUTPUT = """=== GPU test ===
GPU: NVIDIA Tesla T4
Iterations: 10000
Throughput: 7043 ops/s
Avg latency: 150 us
p50: 149000 ns
p99: 0.000201 s
p99.9: 9 ms
Host to Device: 4420 MB/s
Device to Host: 4.61 GB/s
Total time: 1.42 s
GPU Utilization: 98%
"""
TWO_MODELS = """ResNet-50 Offline:
  Throughput: 41,500 images/sec
  Latency p99: 12ms

BERT-Large Server:
  Throughput: 8,400 queries/sec
  Latency p99: 15ms
"""


@pytest.fixture
def read(tmp_path: Path):  # type: ignore[no-untyped-def]
    def call(text: str) -> Source:
        path = tmp_path / "with-gpu-proxy-results.txt"
        path.write_text(text, encoding="utf-8")
        return read_source(path)

    return call


def test_a_markdown_list(read) -> None:  # type: ignore[no-untyped-def]
    source = read(KEY_METRICS)
    (cell,) = source.cells
    assert (source.format, source.label) == ("text", "bare")
    assert dict(cell.metrics) == {
        "throughput": 7043, "latency_mean": 0.15, "latency_p99": 0.201, "host_to_device": 4.42, "device_to_host": 4.61,
    }  # fmt: skip
    assert (cell.workload, cell.scenario, cell.batch_size) == ("unknown", "unknown", None)
    assert cell.load_samples is None
    assert cell.conditions["counted"] == "operations"
    assert "cannot be checked" in cell.claim


def test_the_example_in_the_formats_page(read) -> None:  # type: ignore[no-untyped-def]
    page = (Path(__file__).resolve().parents[4] / "docs/formats.md").read_text()
    (example,) = re.findall(r"^### Text\n\n```\n(.*?)^```", page, flags=re.M | re.S)
    (cell,) = read(example).cells
    assert dict(cell.metrics) == {
        "throughput": 6977, "latency_mean": 0.14, "latency_p99": 0.198, "host_to_device": 4.31,
    }  # fmt: skip
    assert (cell.workload, cell.scenario, cell.batch_size) == ("resnet50", "offline", 32)
    assert cell.conditions["device_name"] == "Tesla T4"


def test_the_output_of_a_program_in_other_units(read) -> None:  # type: ignore[no-untyped-def]
    source = read(PROGRAM_OUTPUT)
    (cell,) = source.cells
    expected = {
        "throughput": 7043, "latency_mean": 0.15, "latency_p50": 0.149, "latency_p99": 0.201, "host_to_device": 4.42,
        "device_to_host": 4.61,
    }  # fmt: skip
    assert set(cell.metrics) == set(expected), "p99.9, totals and utilisation are other things"
    assert all(cell.metrics[name] == pytest.approx(value) for name, value in expected.items())
    assert cell.conditions["device_name"] == "Tesla T4"
    assert "Tesla T4" in source.device_label


def test_headings_begin_new_cells(read) -> None:  # type: ignore[no-untyped-def]
    resnet, bert = read(TWO_MODELS).cells
    assert (resnet.workload, resnet.scenario) == ("resnet50", "offline")
    assert (bert.workload, bert.scenario) == ("bert-large", "server")
    assert (resnet.metrics["throughput"], bert.metrics["throughput"]) == (41500, 8400)
    assert (resnet.conditions["counted"], bert.conditions["counted"]) == ("samples", "queries")


def test_a_wider_heading_ends_what_was_said_of_a_narrower_one(read) -> None:  # type: ignore[no-untyped-def]
    text = "## ResNet-50\n### Offline, batch 8\nThroughput: 8 ops/s\n### Batch 32\nThroughput: 9 ops/s\n"
    cells = read(text + "### Server\np99: 5 ms\n## BERT\np99: 6 ms").cells
    assert [(cell.workload, cell.scenario, cell.batch_size) for cell in cells] == [
        ("resnet50", "offline", 8),
        ("resnet50", "offline", 32),
        ("resnet50", "server", None),
        ("bert-large", "unknown", None),
    ]


def test_named_lines_say_what_follows(read) -> None:  # type: ignore[no-untyped-def]
    text = "Model: ResNet-50 (PyTorch)\nScenario: Single-Stream\nBatch size: 1\np90: 5 ms\n"
    (cell,) = read(text + "Starting server:\np99: 6 ms").cells
    assert (cell.workload, cell.scenario, cell.batch_size) == ("resnet50", "single-stream", 1)
    assert set(cell.metrics) == {"latency_p90", "latency_p99"}, "prose is no heading"
    assert read("server\np99: 6 ms").cells[0].scenario == "unknown", "a word in a log is none either"


def test_units_may_stand_in_the_label(read) -> None:  # type: ignore[no-untyped-def]
    (cell,) = read("p99 (us): 201\nSamples per second: 1815.98\np90_ms = 0.17\nLatency (avg) [ns]: 150000").cells
    assert dict(cell.metrics) == pytest.approx({"latency_p99": 0.201, "throughput": 1815.98, "latency_p90": 0.17})


def test_log_prefixes_are_passed_over(read) -> None:  # type: ignore[no-untyped-def]
    (cell,) = read("2026-01-01T00:00:00.123456789Z Throughput: 5 ops/s\n[pod/a/b] p99: 2 ms").cells
    assert dict(cell.metrics) == {"throughput": 5.0, "latency_p99": 2.0}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("Throughput: 1,000-3,500 samples/sec", "a range or a guess"),
        ("p99: < 10 ms", "a range or a guess"),
        ("Throughput: ~200 samples/sec", "a range or a guess"),
        ("Average Latency: 0,14 ms", "is ambiguous"),
        ("p99: 0.14 ms (14 microseconds)", "do not agree"),
        ("p99: 5", "no known unit"),
        ("Throughput: 5 GB/s", "no known unit"),
        ("Host to Device: 34 Gb/s", "no known unit"),
        ("Throughput: nan ops/s", "throughput is nan"),
        ("p99: inf ms", "latency_p99 is inf"),
        ("p99: -3 ms", "latency_p99 is -3"),
        ("p99: 3 ms\np99: 4 ms", "twice with different values (line 2; line 3)"),
        ("p99: 3 ms\np99: 4 ms\np99: 5 ms", "twice with different values (line 2; line 3)"),
    ],
)
def test_what_is_left_out_and_why(read, line: str, complaint: str) -> None:  # type: ignore[no-untyped-def]
    (cell,) = read(f"p50: 1 ms\n{line}").cells
    assert dict(cell.metrics) == {"latency_p50": 1.0}
    assert complaint in " ".join(notice.text for notice in cell.notices)


def test_rounding_is_no_contradiction_and_the_sharper_number_counts(read) -> None:  # type: ignore[no-untyped-def]
    (cell,) = read("Average Latency: 0.1 ms (140 microseconds)").cells
    assert cell.metrics["latency_mean"] == pytest.approx(0.14)
    (cell,) = read("p99: 13ms   (+1ms)").cells
    assert cell.metrics["latency_p99"] == 13.0
    (cell,) = read("p99: 3 ms\np99: 3.0 ms").cells
    assert cell.metrics["latency_p99"] == 3.0


def test_zero_is_a_number(read) -> None:  # type: ignore[no-untyped-def]
    assert dict(read("p99: 0 ms\nThroughput: 0 ops/s").cells[0].metrics) == {"latency_p99": 0.0, "throughput": 0.0}


@pytest.mark.parametrize("text", ["hello", "a: b\nc: 4 apples", "Latency: 4 ms", "p99: < 4 ms", "=====\n-----"])
def test_a_text_without_a_metric_is_an_error_that_says_what_is_understood(read, text: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ResultsError, match="no known metric in this text") as raised:
        read(text)
    assert "p99: 0.198 ms" in raised.value.next_step


def test_hostile_text_stays_text(read) -> None:  # type: ignore[no-untyped-def]
    source = read("GPU: <script>alert(1)</script>\x1b[31m\u202e\np99: 1 ms\n" + "x" * 100_000 + ": 3 ms")
    assert "<script>" in source.device_label
    assert "\x1b" not in source.device_label
    assert "\u202e" not in source.device_label
