"""Where and when a file was measured: said by the caller, by the file, or by its name and its time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gputax.errors import UsageError
from gputax.results.importers.detect import date_in, read_source

MakeRun = Callable[..., Path]


def written(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(("Throughput: 7,000 ops/sec", *lines)))
    return path


@pytest.mark.parametrize(
    ("name", "lines", "environment"),
    [
        ("k8s-with-hypervisor-results.txt", (), "k8s+xen"),
        ("a.txt", ("**Environment**: K8s pod → GPU proxy daemonset → GPU",), "k8s+proxy"),
        ("a.txt", ("Environment: Direct GPU access, no virtualization",), "bare"),
        ("a.txt", ("Environment: k8s", "Environment: bare"), "unknown"),
        ("k8s.txt", ("Environment: the usual one",), "k8s"),
        ("run-7.txt", (), "unknown"),
        ("k8s/results.txt", (), "k8s"),
        ("k8s/run-7.txt", (), "unknown"),
    ],
)
def test_the_environment(tmp_path: Path, name: str, lines: tuple[str, ...], environment: str) -> None:
    source = read_source(written(tmp_path / "x" / name, *lines))
    assert source.environment == environment
    assert source.label == (environment if environment != "unknown" else Path(name).stem)


def test_the_caller_knows_best(tmp_path: Path) -> None:
    source = read_source(written(tmp_path / "k8s.txt", "Environment: bare"), "k8s+xen")
    assert (source.environment, source.label) == ("k8s+xen", "k8s+xen")
    assert "environment-unclear" not in [notice.code for notice in source.notices]


def test_a_file_that_contradicts_its_name_is_told(tmp_path: Path) -> None:
    source = read_source(written(tmp_path / "k8s.txt", "Environment: bare"))
    assert source.environment == "bare"
    assert "the file says bare, its name says k8s" in source.notices[-1].text


def test_what_we_measured_ourselves_is_not_renamed(make_run: MakeRun) -> None:
    assert read_source(make_run(), "bare").environment == "bare"
    with pytest.raises(UsageError, match="a result of bare, not of k8s"):
        read_source(make_run("again"), "k8s")


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("2025-12-15", "2025-12-15"),
        ("2025-12-15 12:23 UTC", "2025-12-15T12:23:00+00:00"),
        ("2025-12-15T12:30:00", "2025-12-15T12:30:00"),
        ("2025-12-15T12:30:00.123456Z", "2025-12-15T12:30:00+00:00"),
        ("2025-12-15T12:30:00+01:00", "2025-12-15T12:30:00+01:00"),
        ("Mon Dec 15 12:30:00 UTC 2025", "2025-12-15T12:30:00+00:00"),
        ("2025-13-45", ""),
        ("12/11/2025", ""),
        ("yesterday", ""),
        ("", ""),
    ],
)
def test_dates(text: str, date: str) -> None:
    assert date_in(text) == date


def test_the_date_is_that_of_the_file(tmp_path: Path) -> None:
    source = read_source(written(tmp_path / "a.txt", "**Date**: 2025-12-15"))
    assert (source.measured, source.measured_by) == ("2025-12-15", "file")


def test_an_older_json_has_a_timestamp(tmp_path: Path) -> None:
    path = tmp_path / "benchmark_results.json"
    benchmark = {"scenario": "offline", "batch_size": 32, "throughput_samples_per_sec": 3500}
    path.write_text(json.dumps({"timestamp": "2025-12-15T12:30:00", "benchmarks": [benchmark]}))
    for each in (path, tmp_path):
        assert read_source(each).measured == "2025-12-15T12:30:00"


def test_without_a_date_the_time_of_the_file_is_labelled_so(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    source = read_source(path)
    assert (source.measured, source.measured_by) == ("2023-11-14T22:13:20+00:00", "mtime")


def test_our_own_record_has_its_timestamp(make_run: MakeRun) -> None:
    assert read_source(make_run()).measured == "2026-01-01T00:00:00+00:00"
