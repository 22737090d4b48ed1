"""The bench of real call streams: the difference of pairs, with its interval, and a line where packages are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import frameworks
from bench.goals import GOALS, judge


def test_the_difference_is_that_of_pairs_and_one_disturbed_pair_does_not_decide() -> None:
    pairs = [[(1000.0, 1300.0), (1100.0, 1420.0), (1000.0, 9000.0)], [(2000.0, 2310.0), (1000.0, 1305.0)]]
    seen = {"pairs_us": pairs, "calls": {"cuLaunchKernel": 220.0}, "answered": 2.0, "posted": 240.0}
    found = frameworks.stream_figures("onnx", seen)
    key = "proxy_stream_us_per_inference_onnx"
    assert found[key] == pytest.approx(310.0)
    low, high = found[f"{key}_ci95"]
    assert low <= found[key] <= high
    assert (found[f"{key}_direct_us"], found["proxy_stream_answered_onnx"]) == (1000.0, 2.0)


def test_the_start_is_a_ratio_of_pairs() -> None:
    found = frameworks.start_figures([[10.0, 11.0], [8.0, 8.4], [9.0, 27.0]])
    assert found["proxy_torch_start_ratio"] == pytest.approx(1.1)


def test_without_the_packages_the_figure_is_skipped_with_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = frameworks.proxy_stream()
    assert "make test-frameworks" in capsys.readouterr().err
    assert [judge(goal, found) for goal in GOALS if goal.key.startswith(("proxy_stream", "proxy_torch"))] == [None] * 4
