"""The users' five text files, one per layer, side by side: the screen, comparison.md and the JSON."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import Gputax

HERE = Path(__file__).parent
NAMES = (
    "baseline_results.txt",
    "k8s-baseline-results.txt",
    "with-gpu-proxy-results.txt",
    "k8s-with-proxy-results.txt",
    "k8s-with-hypervisor-results.txt",
)
METRIC_KEYS = ("other", "metric", "base_value", "other_value", "budget", "budget_unit", "verdict")
BY_HAND = (("k8s", 142, 1), ("bare+proxy", 147, 5), ("k8s+proxy", 150, 5), ("k8s+xen", 163, 10))
FEBRUARY_6 = 1_770_379_200


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in NAMES:
        shutil.copy(HERE / "five_files" / name, tmp_path / name)
    # The one without a date; a second run must not find another day.
    os.utime(tmp_path / NAMES[-1], (FEBRUARY_6, FEBRUARY_6))
    return tmp_path


def same(text: str, golden: str) -> None:
    text = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    path = HERE / golden
    if os.environ.get("GPUTAX_WRITE_GOLDEN"):  # by hand, and then read what has changed
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("columns", ["80", "60"])
def test_the_screen(gputax: Gputax, directory: Path, columns: str) -> None:
    found = gputax("compare", *NAMES, cwd=directory, COLUMNS=columns)
    assert found.returncode == 7, "values without a spread decide nothing"
    assert max(map(len, found.stdout.splitlines())) <= int(columns)
    same(found.stdout, f"five_files_{columns}.txt")


def test_comparison_md(gputax: Gputax, directory: Path) -> None:
    shown = gputax("compare", *NAMES, "--format", "markdown", cwd=directory).stdout
    same(re.sub(r"gputax \d+\.\d+\.\d+", "gputax VERSION", shown), "five_files.md")
    gputax("compare", *NAMES, "--out", "comparison.md", cwd=directory)
    table = [line for line in shown.splitlines() if line.startswith("|")][:10]
    assert [line for line in (directory / "comparison.md").read_text().splitlines() if line.startswith("|")][
        :10
    ] == table


def test_the_json(gputax: Gputax, directory: Path) -> None:
    document = json.loads(gputax("compare", *NAMES, "--json", cwd=directory).stdout)
    kept = {
        "sides": [
            {key: side[key] for key in ("label", "environment", "source", "measured", "measured_by", "device_label")}
            for side in document["sides"]
        ],
        "metrics": [
            {
                key: row[key]
                for key in ("other", "metric", "base_value", "other_value", "budget", "budget_unit", "verdict")
            }
            for row in document["metrics"]
        ],
        "warnings": document["warnings"],
    }
    same(json.dumps(kept, indent=1, ensure_ascii=False), "five_files.json")


def test_the_numbers_by_hand(gputax: Gputax, directory: Path) -> None:
    """Ground truth that no golden file can hide: what a reader computes from the files."""
    document = json.loads(gputax("compare", *NAMES, "--json", cwd=directory).stdout)
    rows = {(row["other"], row["metric"]): row for row in document["metrics"]}
    for other, mean_us, budget in (
        ("k8s", 142, 1),
        ("bare+proxy", 147, 5),
        ("k8s+proxy", 150, 5),
        ("k8s+xen", 163, 10),
    ):
        row = rows[other, "latency_mean"]
        assert row["overhead_percent"] == pytest.approx(100 * (mean_us / 141 - 1))
        assert row["budget"] == budget
        assert rows[other, "latency_p99"]["budget"] == 2 * budget
        assert rows[other, "latency_p99"]["budget_unit"] == "%"


def test_other_names_say_what_they_are(gputax: Gputax, directory: Path) -> None:
    for number, name in enumerate(NAMES):
        (directory / name).rename(directory / f"{number}.txt")
    words = ("bare=0.txt", "k8s=1.txt", "proxy=2.txt", "k8s+proxy=3.txt", "xen=4.txt")
    named = json.loads(gputax("compare", *words, "--json", cwd=directory).stdout)
    assert [side["environment"] for side in named["sides"]] == ["bare", "k8s", "bare+proxy", "k8s+proxy", "k8s+xen"]


def test_one_that_does_not_fit_is_skipped(gputax: Gputax, directory: Path) -> None:
    (directory / "notes.txt").write_text("measure again on Monday\n")
    found = gputax("compare", *NAMES, "notes.txt", "k8s=gone.txt", cwd=directory, COLUMNS="200")
    assert found.returncode == 7
    assert "Warning: notes.txt is skipped: no known metric in this text" in found.stdout
    assert "Warning: gone.txt is skipped: no such file or directory" in found.stdout
    assert "6,105" in found.stdout


def test_the_report_takes_them_in_any_order(gputax: Gputax, directory: Path) -> None:
    found = gputax("report", *reversed(NAMES), "--json", cwd=directory)
    assert found.returncode == 0, found.stderr
    built = json.loads(found.stdout)
    assert built["question"] == "What do k8s+xen, k8s+proxy, bare+proxy and k8s cost over bare?"
    assert built["measured"].startswith("2026-02-02 to 2026-02-06")
    assert gputax("report", *NAMES, "--out", "report.html", cwd=directory).returncode == 0
    assert "k8s+xen" in (directory / "report.html").read_text()


def test_a_single_text_is_nothing_to_report(gputax: Gputax, directory: Path) -> None:
    found = gputax("report", NAMES[0], cwd=directory)
    assert found.returncode == 5
    assert "gputax compare" in found.stderr
