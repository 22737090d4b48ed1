"""`gputax advise` as a user types it: on a results directory, on published data, on what cannot be advised on."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.sharing_records import cell, cells, contention, partition, record

Gputax = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """An experiment on the CPU: shared grows with the tenants, a quota does not."""
    found = [*cells("cpu-shared", contention(10.0, 0.9)), *cells("cpu-quota", partition(70.0))]
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/sharing.json").write_text(record(*found).model_dump_json())
    return tmp_path / "shared"


def test_a_results_directory(gputax: Gputax, results: Path) -> None:
    done = gputax("advise", "shared", "--slo", "p99=50ms", "--price", "0.5")
    assert done.returncode == 0, done.stderr
    flat = " ".join(done.stdout.split())
    assert flat.startswith("CPU, shared with 3 tenants meets p99 ≤ 50 ms: measured p99 of the worst tenant 4")
    assert "says nothing about a GPU" in flat
    assert "CPU (Test CPU), not a GPU: p99 ≤ 50 ms" in flat
    assert done.stderr == ""


def test_json_holds_the_same_answer(gputax: Gputax, results: Path) -> None:
    done = gputax("advise", "shared/sharing.json", "--slo", "p99=50ms", "--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["schema_version"], data["kind"], data["meets"]) == (1, "advice", "yes")
    assert data["best"] == {"technique": "cpu-shared", "tenants": 3}
    assert data["stand_in"]
    assert data["device_label"] == "CPU (Test CPU), not a GPU"


def test_nothing_that_meets_the_target_is_an_exit_code_to_gate_on(gputax: Gputax, results: Path) -> None:
    done = gputax("advise", "shared", "--slo", "p99=1ms")
    assert done.returncode == 6, done.stdout + done.stderr
    assert done.stdout.startswith("Nothing meets p99 ≤ 1 ms. Nearest: CPU, shared with 1 tenant")


def test_published_data(gputax: Gputax) -> None:
    done = gputax("advise", "published:a100-nos", "--slo", "mean=200ms")
    assert done.returncode == 0, done.stderr
    assert "not measured by gputax" in " ".join(done.stdout.split())


def test_a_percentile_that_was_never_published(gputax: Gputax) -> None:
    done = gputax("advise", "published:a100-nos", "--slo", "p99=50ms")
    assert done.returncode == 2
    assert "only means, so p99 cannot be estimated" in done.stderr
    assert done.stdout == ""


def test_one_point_is_no_curve(gputax: Gputax, tmp_path: Path) -> None:
    (tmp_path / "sharing.json").write_text(record(cell("mps", 1, 1, 10.0)).model_dump_json())
    done = gputax("advise", ".", "--slo", "mean=50ms")
    assert done.returncode == 5
    assert "needs a number of tenants other than 1" in done.stderr
    assert "gputax share --tech mps --tenants 1,3,5,7" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_neighbours_experiment_is_not_what_advise_needs(gputax: Gputax, tmp_path: Path) -> None:
    made = record(plan={"victim": "single-stream", "aggressors": ["compute"]})
    (tmp_path / "sharing.json").write_text(made.model_dump_json())
    done = gputax("advise", ".", "--slo", "mean=50ms")
    assert done.returncode == 5
    assert "this is a neighbours experiment" in done.stderr
    assert "gputax share --env bare --tenants 1,3,5,7 --out DIR" in done.stderr


def test_a_directory_of_something_else(gputax: Gputax, tmp_path: Path) -> None:
    done = gputax("advise", str(tmp_path), "--slo", "mean=50ms")
    assert done.returncode == 5
    assert "no sharing experiment here" in done.stderr
