"""What a command line names: `FILE` and `k8s=FILE`, and files that do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputax import api
from gputax.compare.matching import named_path
from gputax.errors import ResultsError, UsageError


def text_file(path: Path, throughput: float = 7000.0) -> Path:
    path.write_text(f"Throughput: {throughput:g} ops/sec\np99 Latency: 0.2 ms\n")
    return path


@pytest.mark.parametrize(
    ("word", "environment", "path"),
    [
        ("k8s=a.txt", "k8s", "a.txt"),
        ("xen=out/a.txt", "k8s+xen", "out/a.txt"),
        ("kubernetes+proxy=a.txt", "k8s+proxy", "a.txt"),
        ("a.txt", "", "a.txt"),
        ("out/k8s=a.txt", "", "out/k8s=a.txt"),
    ],
)
def test_a_word_may_name_the_environment(word: str, environment: str, path: str) -> None:
    assert named_path(word) == (environment, Path(path))


def test_a_file_with_an_equals_sign_in_its_name_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text_file(Path("k8s=a.txt"))
    assert named_path("k8s=a.txt") == ("", Path("k8s=a.txt"))


def test_an_unknown_environment_is_a_usage_error_with_a_hint() -> None:
    with pytest.raises(UsageError, match="unknown environment 'containr'") as raised:
        named_path("containr=a.txt")
    assert "did you mean 'container'?" in raised.value.next_step


def test_each_layer_has_its_own_budget(tmp_path: Path) -> None:
    names = ("baseline_results", "k8s-baseline-results", "with-gpu-proxy-results", "k8s-with-proxy-results",
             "k8s-with-hypervisor-results")  # fmt: skip
    comparison = api.compare(*(text_file(tmp_path / f"{name}.txt") for name in names))
    budgets = {row.other: row.budget for row in comparison.metrics if row.metric == "throughput"}
    assert budgets == {"k8s": 1.0, "bare+proxy": 5.0, "k8s+proxy": 5.0, "k8s+xen": 10.0}
    assert [side.label for side in comparison.sides] == ["bare", *budgets]


def test_files_of_any_name(tmp_path: Path) -> None:
    base, other = text_file(tmp_path / "monday.txt"), text_file(tmp_path / "tuesday.txt")
    comparison = api.compare(f"bare={base}", f"k8s={other}")
    assert [side.environment for side in comparison.sides] == ["bare", "k8s"]
    assert comparison.metrics[0].budget == 1.0


def test_a_file_that_does_not_fit_is_skipped_with_its_reason(tmp_path: Path) -> None:
    base, other = text_file(tmp_path / "baseline.txt"), text_file(tmp_path / "k8s.txt")
    prose = tmp_path / "notes.txt"
    prose.write_text("To do: measure\n")
    alien = tmp_path / "proxy.txt"
    alien.write_text("BERT-Large Server:\n  p90: 15 ms\n")
    comparison = api.compare(base, prose, alien, other, tmp_path / "missing.txt")
    assert [side.label for side in comparison.sides] == ["bare", "k8s"]
    skipped = [warning.text for warning in comparison.warnings if warning.code == "skipped-file"]
    assert len(skipped) == 3
    assert any("notes.txt is skipped: no known metric" in text for text in skipped)
    assert any("proxy.txt is skipped: bare and bare+proxy have no metric in common" in text for text in skipped)
    assert any("missing.txt is skipped: no such file" in text for text in skipped)


def test_if_nothing_is_left_it_is_an_error(tmp_path: Path) -> None:
    base = text_file(tmp_path / "baseline.txt")
    with pytest.raises(ResultsError, match="no such file"):
        api.compare(base, tmp_path / "missing.txt")
    with pytest.raises(ResultsError, match="no such file"):
        api.compare(tmp_path / "missing.txt", base)
