"""A busy loop beside a run: said before, labelled after, exit code 5 unless it is accepted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gputax.errors import PreflightError
from gputax.measure import quiet
from gputax.results.documents.run import RunRecord

Gputax = Callable[..., subprocess.CompletedProcess[str]]
RUN = ("run", "--engine", "synthetic:latency_us=2000", "--scenario", "single-stream", "--suite", "tiny.toml")
SUITE = "scenarios = ['single-stream']\nsample_count = 16\n['single-stream']\npilot_s = 0.2\nmin_samples = 400\n"
# Tests accept a disturbed machine everywhere else.
STRICT = {"GPUTAX_ACCEPT_DISTURBED": "0"}


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "tiny.toml").write_text(SUITE)
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * len(os.sched_getaffinity(0)))
    ]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


@pytest.mark.usefixtures("busy")
def test_a_run_beside_a_busy_loop_is_disturbed(gputax: Gputax, tmp_path: Path) -> None:
    done = gputax(*RUN, "--out", "o", **STRICT)
    assert done.returncode == 5, done.stderr
    assert "warning: not quiet: other processes use" in done.stderr
    assert "python" in done.stderr, "the busiest processes are named"
    assert "VALID DISTURBED" in done.stdout
    (cell,) = RunRecord.model_validate_json((tmp_path / "o/benchmark_results.json").read_text()).benchmarks
    assert cell.valid
    assert any("other processes used" in reason and "(limit " in reason for reason in cell.disturbed)
    accepted = gputax(*RUN, "--out", "p", "--accept-disturbed", **STRICT)
    assert accepted.returncode == 0, accepted.stderr
    assert "not quiet" not in accepted.stderr
    assert "VALID DISTURBED" in accepted.stdout, "the label remains"
    compared = gputax("compare", "o", "p", "--json", **STRICT)
    rows: list[dict[str, Any]] = json.loads(compared.stdout)["metrics"]
    assert {row["verdict"] for row in rows} == {"inconclusive"}
    assert compared.returncode == 7


@pytest.mark.usefixtures("busy")
def test_waiting_in_vain_stops_before_the_first_measurement(gputax: Gputax, tmp_path: Path) -> None:
    done = gputax(*RUN, "--out", "o", "--wait-quiet", "0.05", **STRICT)
    assert done.returncode == 3
    assert "the machine was not quiet within 3 s: other processes use" in done.stderr
    assert not (tmp_path / "o").exists()


@pytest.mark.usefixtures("busy")
def test_a_duet_and_shared_cells_are_undecided_beside_busy_loops_unless_accepted(
    gputax: Gputax, tmp_path: Path
) -> None:
    engine = ("--engine", "synthetic:latency_us=2000")
    words = ("duet", "bare", "bare", *engine, "--budget", "90%", "--no-control", "--max-time", "6")
    done = gputax(*words, "--out", "d", **STRICT)
    found = json.loads((tmp_path / "d/comparison.json").read_text())
    assert done.returncode == 5, done.stderr
    assert "other processes used" in found["disturbed"][0], "others have more than 60 % of the CPUs"
    assert {row["verdict"] for row in found["metrics"]} == {"inconclusive"}
    assert "DISTURBED" in done.stdout
    accepted = gputax(*words, "--out", "e", "--accept-disturbed", **STRICT)
    assert accepted.returncode in (0, 7), "a verdict stands if the pairs give one"
    assert json.loads((tmp_path / "e/comparison.json").read_text())["disturbed"], "the label remains"

    shared = ("share", *engine, "--tech", "cpu-shared", "--tenants", "1,2", "--repeats", "1", "--window", "1s")
    done = gputax(*shared, "--warmup", "0.2s", "--out", "s", **STRICT)
    assert done.returncode == 5, done.stderr
    assert "undecided, the machine was disturbed" in " ".join(done.stdout.split())
    accepted = gputax(*shared, "--warmup", "0.2s", "--out", "t", "--accept-disturbed", **STRICT)
    assert accepted.returncode == 0, accepted.stderr
    assert "DISTURBED" in accepted.stdout


@pytest.mark.usefixtures("busy")
def test_a_far_machine_is_looked_at_by_a_worker_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "_is_here", lambda *_: False)
    with pytest.raises(PreflightError) as stopped:
        quiet.look_before(("bare",), 0.5, print, print)
    assert stopped.value.where == "bare"
    assert "other processes use" in stopped.value.what
