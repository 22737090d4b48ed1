"""`gputax demo` from its first look at the machine to its report, with delays in place of a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gputax.cli.demo import Sizes, exit_code, run_demo
from gputax.cli.main import main
from gputax.environments.driver import missing_parts
from gputax.report.demo import DemoResults
from tests.builders.documents import benchmark, record
from tests.standins.command import TINY_SUITE

PARTS = ("run/benchmark_results.json", "resolution.json", "share/sharing.json", "report.html")
PROXY_PARTS = ("proxy/comparison.json", "tenants/sharing.json")


@pytest.fixture
def sizes(tmp_path: Path) -> Sizes:
    (tmp_path / "tiny.toml").write_text(TINY_SUITE)
    return Sizes(
        suite=str(tmp_path / "tiny.toml"),
        engine="synthetic:latency_us=500",
        resolution_s=3.0,
        duet_s=6.0,
        tenants=(1, 2),
        repeats=2,
        window_s=0.3,
        warmup_s=0.1,
        proxy_window_s=0.3,
        proxy_warmup_s=0.1,
    )


@pytest.mark.skipif(bool(missing_parts()), reason="native parts are not built")
def test_one_directory_one_screen_one_page(
    tmp_path: Path, sizes: Sizes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_demo("demo", False, sizes) in (0, 5)
    for part in (*PARTS, *PROXY_PARTS):
        assert (tmp_path / "demo" / part).is_file(), part
    out, err = capsys.readouterr()
    assert len(out.splitlines()) <= 32
    assert max(map(len, out.splitlines())) <= 80
    assert "Report: demo/report.html" in out
    assert "Noise floor of this machine: ±" in (tmp_path / "demo" / "report.html").read_text()
    assert "Next: gputax " in out
    assert len(err.splitlines()) == 7, "one line for each step"


def test_without_native_parts_the_proxy_is_skipped_with_a_warning(
    tmp_path: Path, sizes: Sizes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUTAX_NATIVE", str(tmp_path / "nothing"))
    assert run_demo(str(tmp_path / "demo"), True, sizes) in (0, 5)
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["proxy"] is None
    assert "tenants" not in document
    assert document["run"]["complete"]
    assert "warning: skipped the GPU proxy" in err
    for part in PARTS:
        assert (tmp_path / "demo" / part).is_file(), part


def test_a_directory_with_results_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "something").write_text("")
    assert main(["demo", "--out", str(tmp_path)]) == 2
    assert "this directory holds results already" in capsys.readouterr().err


def test_invalid_results_are_told_by_the_exit_code() -> None:
    def found(valid: bool) -> DemoResults:
        return DemoResults(2, (), record(benchmark(valid=valid)), None, None, ())

    assert exit_code(found(valid=True)) == 0
    assert exit_code(found(valid=False)) == 5
