"""What CI uses: exports and the gate of `gputax duet`, and the composite action's script."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

Gputax = Callable[..., subprocess.CompletedProcess[str]]
REPOSITORY = Path(__file__).resolve().parents[2]
ACTION = REPOSITORY / ".github/actions/duet"
QUICK = ("--engine", "synthetic:latency_us=2000", "--max-time", "8", "--no-control")


def test_a_duet_writes_every_export_and_appends_the_summary(gputax: Gputax, tmp_path: Path) -> None:
    (tmp_path / "summary.md").write_text("## Before\n")
    kinds = {"junit": "j.xml", "summary": "summary.md", "benchmark": "b.json", "openmetrics": "m.prom"}
    exports = [word for kind, file in kinds.items() for word in ("--export", f"{kind}={file}")]
    done = gputax("duet", "bare", "bare", *QUICK, *exports, "--out", "d")
    assert done.returncode in (0, 6, 7), done.stderr
    assert ElementTree.parse(tmp_path / "j.xml").getroot().tag == "testsuites"
    assert (tmp_path / "summary.md").read_text().startswith("## Before\n\n<!-- gputax")
    again = gputax("report", "d", "--format", "openmetrics")
    assert again.stdout == (tmp_path / "m.prom").read_text(), "the same from disk"


def test_an_export_over_a_foreign_file_or_of_an_unknown_kind_is_refused_at_once(gputax: Gputax, tmp_path: Path) -> None:
    (tmp_path / "mine.xml").write_text("<mine/>")
    for export, message in {
        "junit=mine.xml": "is not a report of gputax",
        "junitt=x.xml": "did you mean 'junit'",
        "junit=": "names no file",
    }.items():
        done = gputax("duet", "bare", "bare", *QUICK, "--export", export)
        assert done.returncode == 2
        assert message in done.stderr
    assert (tmp_path / "mine.xml").read_text() == "<mine/>"


def test_a_gate_below_the_noise_is_refused_and_nothing_is_kept(gputax: Gputax, tmp_path: Path) -> None:
    # Two sleeps of 2 ms never agree to a millionth.
    done = gputax("duet", "bare", "bare", *QUICK, "--budget", "0.000001%", "--gate", "--out", "d")
    assert done.returncode == 3, done.stdout
    assert "lies below this runner's noise" in done.stderr
    assert "would decide it (--max-time " in done.stderr
    assert not (tmp_path / "d").exists()


def step(tmp_path: Path, **inputs: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str], str]:
    """Run the action's script as a runner does; return it, its outputs and its step summary."""
    for name in ("output", "summary"):
        (tmp_path / name).write_text("")
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "DUET_A": "bare",
        "DUET_B": "bare",
        "DUET_GATE": "false",
        "DUET_ARGUMENTS": " ".join(QUICK),
        **inputs,
    }
    done = subprocess.run(
        ["bash", str(ACTION / "duet.sh")], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    outputs = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
    return done, outputs, (tmp_path / "summary").read_text()


def test_the_action_measures_and_leaves_everything_for_the_next_steps(tmp_path: Path) -> None:
    done, outputs, summary = step(tmp_path, DUET_BUDGET="50%", DUET_UNDECIDED="warn")
    assert done.returncode == 0, done.stderr
    assert outputs["verdict"] in ("pass", "undecided", "disturbed")
    assert ("::warning" in done.stdout) == (outputs["verdict"] != "pass")
    names = {path.name for path in Path(outputs["results"]).iterdir()}
    assert {"comparison.json", "junit.xml", "benchmark.json", "metrics.prom"} <= names
    assert summary.startswith("<!-- gputax report, summary -->")


def test_the_action_fails_over_budget_with_the_exit_code_of_the_duet(tmp_path: Path) -> None:
    slower = "--engine-b synthetic:latency_us=4000 --engine synthetic:latency_us=2000 --max-time 30 --no-control"
    done, outputs, summary = step(tmp_path, DUET_ARGUMENTS=slower, DUET_BUDGET="5%", DUET_MAX_TIME="30")
    assert (done.returncode, outputs["verdict"]) == (6, "fail"), done.stderr
    assert "### ❌" in summary


def test_the_action_says_in_its_summary_why_nothing_was_measured(tmp_path: Path) -> None:
    done, outputs, summary = step(tmp_path, DUET_B="nowhere; touch hacked")
    assert (done.returncode, outputs["verdict"]) == (2, "error")
    assert "unknown environment" in summary
    assert not (tmp_path / "hacked").exists(), "an input is never a command"


@pytest.fixture(scope="module")
def action() -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load((ACTION / "action.yml").read_text())
    return found


def test_every_input_of_the_action_reaches_its_script(action: dict[str, object]) -> None:
    text, script = (ACTION / "action.yml").read_text(), (ACTION / "duet.sh").read_text()
    inputs = set(action["inputs"]) - {"install"}  # type: ignore[call-overload]
    passed = {word.rstrip(":") for word in text.split() if word.startswith("DUET_")}
    assert passed == {f"DUET_{name.upper().replace('-', '_')}" for name in inputs}
    for name in inputs:
        assert f"DUET_{name.upper().replace('-', '_')}" in script
        assert f"${{{{ inputs.{name} }}}}" in text
    page = (REPOSITORY / "docs/ci.md").read_text()
    assert all(f"`{name}`" in page for name in action["inputs"])  # type: ignore[attr-defined]
