"""What lies on disk may be anything: a clear message each, and never a traceback."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputax.errors import ResultsError
from gputax.report.output import FORMATS, Format, report_text
from gputax.report.sources import DUET_SAMPLES, cleaned, read_comparison, read_sources
from gputax.report.story import build_report, report_on
from gputax.results.documents.comparison import COMPARISON_NAME, RESOLUTION_NAME, Resolution
from gputax.results.documents.run import RECORD_NAME
from gputax.results.files import write_text
from gputax.results.reading import RUN
from gputax.results.store import ResultDirectory
from tests.builders.documents import (
    CPU,
    benchmark,
    columns,
    comparison,
    metric,
    record,
    run_source,
    series,
    side,
    sources,
)

BROKEN = {
    "empty": (b"", "the file is empty"),
    "blank": (b" \n", "the file is empty"),
    "truncated": (b'{"schema_version": 1, "metr', "invalid JSON"),
    "binary": (bytes(range(256)), "a binary file"),
    "a list": (b"[1, 2]", "not a (comparison|run record)"),
    "a number": (b"7", "not a (comparison|run record)"),
    "newer": (b'{"schema_version": 99}', "newer gputax .schema 99, this one supports 1."),
    "nested": (b"[" * 100_000 + b"]" * 100_000, "JSON is nested too deeply"),
}


@pytest.mark.parametrize("name", [RECORD_NAME, COMPARISON_NAME])
@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_document_is_named_and_explained(tmp_path: Path, name: str, kind: str) -> None:
    content, message = BROKEN[kind]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ResultsError, match=message) as caught:
        read_sources([tmp_path])
    assert name in caught.value.where


@pytest.mark.parametrize(
    ("name", "content", "what", "next_step"),
    [
        ("base.txt", b"Throughput: 5 ops/sec", "neither a run record nor a comparison", "`gputax compare` reads texts"),
        ("pod.log", bytes(range(1, 200)), "neither a run record nor a comparison", "`gputax compare` reads texts"),
        ("mine.json", b'{"schema_version": 1, "benchmarks": []}', "this is a run record", RECORD_NAME),
        (RECORD_NAME, b'{"gpu_info": {}, "benchmarks": []}', "not a run record", "`gputax compare` reads it"),
    ],
)
def test_a_file_that_belongs_elsewhere_is_sent_there(
    tmp_path: Path, name: str, content: bytes, what: str, next_step: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ResultsError, match=what) as caught:
        read_sources([tmp_path / name])
    assert next_step in caught.value.next_step


def test_an_unknown_key_is_named(tmp_path: Path) -> None:
    data = {**comparison().model_dump(mode="json"), "surprise": 1}
    write_text(tmp_path / COMPARISON_NAME, json.dumps(data))
    with pytest.raises(ResultsError, match="not a comparison: surprise"):
        read_comparison(tmp_path / COMPARISON_NAME)


@pytest.mark.parametrize(("make", "message"), [(True, "no results here"), (False, "no such directory")])
def test_a_place_without_results_says_what_to_do(tmp_path: Path, make: bool, message: str) -> None:
    place = tmp_path / "place"
    if make:
        place.mkdir()
    with pytest.raises(ResultsError, match=message) as caught:
        read_sources([place])
    assert "gputax run" in caught.value.next_step


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A run directory as `gputax run` leaves it."""
    store = ResultDirectory(tmp_path / "run", RUN)
    made = benchmark()
    store.write_document(record(made))
    store.write_samples(made.samples_file, columns())
    write_text(store.path / made.telemetry_file, json.dumps({"time_ns": [0, 1], "own_busy_percent": [None, 5.0]}))
    store.close()
    return store.path


def test_a_run_directory_is_read_whole(directory: Path) -> None:
    (run,) = read_sources([directory]).runs
    assert run.record == record()
    assert run.shapes[benchmark().cell].curve is not None
    assert run.telemetry[benchmark().cell]["own_busy_percent"] == [None, 5.0]
    assert run.missing == ()


def test_the_curve_of_a_repeated_cell_is_over_all_its_repeats(tmp_path: Path) -> None:
    """The slow half of the requests is in the second repeat alone."""
    store = ResultDirectory(tmp_path / "run", RUN)
    first = benchmark()
    second = benchmark(repeat=2, samples_file="samples/second.parquet")
    store.write_document(record(first, second))
    for each, latency_ns in ((first, 1_000_000), (second, 3_000_000)):
        start = np.arange(1000) * 5_000_000
        store.write_samples(
            each.samples_file, {"start_ns": start, "end_ns": start + latency_ns, "samples": np.ones(1000, dtype=int)}
        )
    store.close()
    (run,) = read_sources([store.path]).runs
    curve = run.shapes[first.cell].curve
    assert curve is not None
    assert (min(curve.latency_ms), max(curve.latency_ms)) == (1.0, 3.0)


def test_a_directory_of_directories_is_all_of_them_and_each_counts_once(directory: Path) -> None:
    write_text(directory.parent / "duet" / COMPARISON_NAME, comparison().model_dump_json())
    found = read_sources([directory.parent, directory, directory / RECORD_NAME])
    assert len(found.runs) == 1
    assert len(found.comparisons) == 1


def test_a_directory_may_hold_a_run_and_a_comparison(directory: Path) -> None:
    write_text(directory / COMPARISON_NAME, comparison().model_dump_json())
    found = read_sources([directory])
    assert (len(found.runs), len(found.comparisons)) == (1, 1)


def duet_directory(root: Path) -> Path:
    """A duet's directory as `gputax duet` leaves it."""
    store = ResultDirectory(root / "duet", RUN)
    store.write_text(COMPARISON_NAME, comparison().model_dump_json())
    for name in DUET_SAMPLES:
        store.write_samples(name, {"pair": np.arange(1000), "latency_ns": np.arange(1000) * 1000 + 5_000_000})
    store.close()
    return store.path


def test_a_duet_brings_the_latencies_of_both_sides(tmp_path: Path) -> None:
    report = build_report(read_sources([duet_directory(tmp_path)]))
    (chart,) = [chart for chart in report.charts if chart.name.startswith("latency")]
    assert chart.title == f"resnet50 offline b8: latency of a batch, in pairs on {CPU}"
    assert {row["label"] for row in chart.spec["data"]["values"]} == {"bare", "k8s+proxy"}


def test_a_duet_without_its_samples_still_has_its_verdict(tmp_path: Path) -> None:
    directory = duet_directory(tmp_path)
    (directory / DUET_SAMPLES[0]).unlink()
    report = build_report(read_sources([directory]))
    assert [chart for chart in report.charts if chart.name.startswith("latency")] == []
    assert report.answer.tone == "pass"


def test_broken_samples_of_a_duet_are_an_error(tmp_path: Path) -> None:
    directory = duet_directory(tmp_path)
    (directory / DUET_SAMPLES[1]).write_bytes(b"PAR1")
    with pytest.raises(ResultsError, match="samples cannot be read") as caught:
        read_sources([directory])
    assert caught.value.where.endswith(DUET_SAMPLES[1])


def test_a_missing_samples_file_costs_its_chart_and_is_said(directory: Path) -> None:
    (directory / benchmark().samples_file).unlink()
    (directory / benchmark().telemetry_file).unlink()
    report = build_report(read_sources([directory]))
    assert [chart for chart in report.charts if chart.name.startswith(("latency", "telemetry"))] == []
    assert any("missing" in warning.text and ".parquet" in warning.text for warning in report.warnings)


@pytest.mark.parametrize("content", [b"", b"PAR1", bytes(range(256)) * 10])
def test_broken_samples_are_an_error(directory: Path, content: bytes) -> None:
    (directory / benchmark().samples_file).write_bytes(content)
    with pytest.raises(ResultsError, match="samples cannot be read") as caught:
        read_sources([directory])
    assert caught.value.where.endswith(".parquet")


@pytest.mark.parametrize(
    "telemetry",
    ["", "[]", '{"time_ns": 1}', '{"time_ns": ["x"]}', '{"time_ns": [1], "rss_mb": [1, 2]}', '{"a": [true]}'],
)
def test_broken_telemetry_is_an_error(directory: Path, telemetry: str) -> None:
    (directory / benchmark().telemetry_file).write_text(telemetry)
    with pytest.raises(ResultsError, match=r"not telemetry|the file is empty"):
        read_sources([directory])


@pytest.mark.parametrize("name", ["../../secret.parquet", "/etc/passwd", "a\0b"])
def test_a_record_cannot_name_files_outside_its_directory(directory: Path, name: str) -> None:
    data = record(benchmark(samples_file=name)).model_dump_json()
    write_text(directory / RECORD_NAME, data)
    with pytest.raises(ResultsError, match="outside its directory"):
        read_sources([directory])


def strings_of(data: Any) -> list[str]:
    if isinstance(data, str):
        return [data]
    if isinstance(data, dict):
        return [text for key, value in data.items() for text in (*strings_of(key), *strings_of(value))]
    return [text for each in data for text in strings_of(each)] if isinstance(data, list | tuple) else []


def test_every_text_is_made_harmless_once_for_all_exporters() -> None:
    bad = "a\x1b[2J\ud800\nb\u202e"
    dirty = sources(
        comparison(question=bad, command=bad, sides=(side("bare", fingerprint={bad: {bad: [bad]}}), side(bad))),
        runs=(run_source(benchmark(bad, workload=bad, claim=bad), directory=bad),),
    )
    clean = cleaned(dirty)
    texts = strings_of([clean.comparisons[0].comparison.model_dump(), clean.runs[0].record.model_dump()])
    texts += [clean.runs[0].directory, *clean.runs[0].shapes]
    for text in texts:
        text.encode()
        assert not {"\x1b", "\n", "\u202e"} & set(text)


def test_nothing_measured_is_nothing_to_report() -> None:
    with pytest.raises(ResultsError, match="nothing was measured"):
        build_report(sources(runs=(run_source(benchmarks=()),)))


def test_a_metric_that_names_an_unknown_side_is_shown_without_a_device() -> None:
    made = comparison(sides=(side("bare"),))
    assert "an unknown device" in str(report_on(made).answer_table)


ODD = {
    "no sides": comparison(sides=()),
    "one side": comparison(sides=(side("bare"),)),
    "empty names": comparison(metric("", "", workload="", scenario="", metric="", unit="", reason="")),
    "a metric that nobody knows": comparison(metric(metric="joules_per_token", unit="J")),
    "a base of zero": comparison(metric(base_value=0.0, percent=None, verdict="inconclusive")),
    "a loss of everything": comparison(metric(percent=-100.0, ci95_percent=(-100.0, math.inf))),
    "huge numbers": comparison(metric(percent=1e300, ci95_percent=(1e299, 1e301), base_value=1e308)),
    "bounds the wrong way round": comparison(metric(ci95_percent=(9.0, -9.0))),
    "pairs of unequal length": comparison(pair_series=(series(time_s=(0.0,), b_first=()),)),
    "pairs without a metric": comparison(pair_series=(series(workload="other"),)),
    "no pairs at all": comparison(pair_series=(series(time_s=(), overhead_percent=(), b_first=()),)),
    "the same side twice": comparison(metric("bare", "bare")),
    "a circle": comparison(metric("a", "b"), metric("b", "c"), metric("c", "a")),
    "equal labels": comparison(metric(), metric(), metric()),
    "deep evidence": comparison(
        sides=(side("bare", evidence={"a": {"b": {"c": [1, {"d": None}]}}}), side("k8s+proxy"))
    ),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("export", [name for name in FORMATS if name != "svg"])
def test_odd_documents_are_shown_and_never_a_traceback(kind: str, export: Format) -> None:
    assert report_text(report_on(ODD[kind]), export)


def test_a_comparison_without_metrics_is_nothing_to_report() -> None:
    with pytest.raises(ResultsError, match="nothing was measured"):
        report_on(comparison().model_copy(update={"metrics": ()}))


def test_the_date_is_that_of_the_measurements_and_not_of_the_comparison(tmp_path: Path) -> None:
    measured = record(timestamp="2025-03-04T05:06:07+00:00")
    write_text(tmp_path / "run" / RECORD_NAME, measured.model_dump_json())
    later = comparison(kind="compare", timestamp="2026-01-01T12:00:00+00:00", sides=(
        side("bare", source=str(tmp_path / "run")), side("k8s+proxy", source=str(tmp_path / "gone.txt"))
    ))  # fmt: skip
    assert report_on(later).measured == "2025-03-04 05:06 UTC"


def test_files_without_a_date_are_not_given_that_of_their_comparison() -> None:
    undated = comparison(kind="compare", sides=(side("bare", source="base.txt"), side("k8s+proxy", source="k8s.txt")))
    text = report_on(undated).measured
    assert text == "at an unknown time (compared 2026-01-01 12:00 UTC)"


def test_the_date_of_a_file_stays_when_the_file_is_gone() -> None:
    dated = comparison(kind="compare", sides=(
        side("bare", source="gone.txt", measured="2025-12-15"),
        side("k8s", source="gone-too.txt", measured="2025-12-16T12:23:00+00:00"),
    ))  # fmt: skip
    assert report_on(dated).measured == "2025-12-15 to 2025-12-16 12:23 UTC"
    undated = side("k8s", source="k.txt", measured="2025-12-16T12:23:00+00:00", measured_by="mtime")
    text = report_on(dated.model_copy(update={"sides": (dated.sides[0], undated)})).measured
    assert text == "2025-12-15 to 2025-12-16 12:23 UTC (k8s: the time of the file, which has no date)"


def test_a_noise_floor_beside_the_parts_is_in_the_report(tmp_path: Path) -> None:
    write_text(tmp_path / "run" / RECORD_NAME, record().model_dump_json())
    control = Resolution(
        half_width_percent=4.71, ci95_percent=(-4.0, 5.4), pairs=1234, seconds=15.2, contains_zero=True
    )
    write_text(tmp_path / RESOLUTION_NAME, control.model_dump_json())
    said = "Noise floor of this machine: ±4.7 % (A against A: 1,234 pairs in 15 s)."
    built = build_report(read_sources([tmp_path]))
    assert [fact.text for fact in built.facts].count(said) == 1
    assert said in report_text(built, "html").replace("\u00a0", " ")
    assert build_report(read_sources([tmp_path / "run"])).facts == built.facts[1:], "a part alone says nothing of it"


def test_a_broken_noise_floor_is_named(tmp_path: Path) -> None:
    write_text(tmp_path / "run" / RECORD_NAME, record().model_dump_json())
    write_text(tmp_path / RESOLUTION_NAME, '{"pairs": 3}')
    with pytest.raises(ResultsError, match="not an A/A control") as caught:
        read_sources([tmp_path])
    assert RESOLUTION_NAME in caught.value.where
