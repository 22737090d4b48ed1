"""`gputax share` from the command line to the files on disk, its faults included."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from gputax.results.reading import SHARING
from gputax.results.store import read_document, read_samples
from gputax.sharing.cpu_quota import PREFIX
from tests.standins import control_groups
from tests.standins.small_disk import fill, small_disk
from tests.standins.started import start, wait_for, workers_of

Gputax = Callable[..., subprocess.CompletedProcess[str]]
REPOSITORY = Path(__file__).resolve().parents[2]
ENGINE = "synthetic:latency_us=2000"
SHORT = ("--window", "0.5s", "--warmup", "0.1s", "--repeats", "1", "--tenants", "1,2")
CPU = ("share", "--tech", "cpu-shared", "--engine", ENGINE, *SHORT, "--out", "o")


def runs(pid: int) -> bool:
    """Whether a process lives; one that ended has no command line, and once it was waited for no file of it either."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not any(runs(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def test_an_experiment_on_the_cpu(gputax: Gputax, tmp_path: Path) -> None:
    done = gputax(*CPU)
    assert done.returncode == 0, done.stderr
    record = read_document(SHARING, tmp_path / "o")
    assert record.complete
    assert len(record.cells) == 2
    assert (record.plan["tenants"], record.plan["repeats"], record.plan["window_s"]) == ([1, 2], 1, 0.5)
    assert record.cells_planned == tuple(cell.cell for cell in record.cells)
    jsonschema.validate(
        json.loads((tmp_path / "o/sharing.json").read_text()),
        json.loads((REPOSITORY / "docs/sharing.schema.json").read_text()),
    )
    assert "cpu-shared (stand-in)" in done.stdout
    assert "not a GPU" in done.stdout
    assert "2 tenants" in done.stdout
    assert "[2/2]" in done.stderr
    assert record.command.startswith("gputax share --tech cpu-shared")
    events = [json.loads(line)["event"] for line in (tmp_path / "o/events.jsonl").read_text().splitlines()]
    assert events == ["sharing started", "switched", *["cell ended"] * 2, "sharing ended"]

    for cell in record.cells:
        columns = read_samples(tmp_path / "o" / cell.results[0].samples_file)
        for result in cell.results:
            kept = (columns["tenant"] == result.tenant) & (columns["kept"] == 1)
            latency_ms = (columns["end_ns"] - columns["start_ns"])[kept] / 1e6
            assert result.inferences == len(latency_ms), "the figures can be computed again from the samples"
            assert result.mean_ms == pytest.approx(np.mean(latency_ms))

    again = gputax(*CPU)
    assert again.returncode == 2
    assert "already complete" in again.stderr
    other = gputax(*CPU, "--slices", "9")
    assert other.returncode == 2
    assert "another sharing experiment" in other.stderr


def test_tenants_behind_one_proxy(gputax: Gputax, tmp_path: Path) -> None:
    words = ("--tech", "proxy", "--device", "software", "--proxy-memory-mb", "64", *SHORT)
    done = gputax("share", *words, "--json", "--out", "o")
    assert done.returncode == 0, done.stderr
    record = read_document(SHARING, tmp_path / "o")
    assert json.loads(done.stdout)["plan_id"] == record.plan_id
    assert record.device == "software"
    assert record.device_label.startswith("software device")
    two = next(cell for cell in record.cells if cell.tenants == 2)
    assert len({result.evidence["proxy_pid"] for result in two.results}) == 1, "one proxy serves all"
    assert len({result.evidence["tenant"] for result in two.results}) == 2
    assert two.results[0].entitlement == "up to all of it, 64 MB of memory"


def test_an_interrupt_keeps_what_is_done_and_the_same_command_resumes(tmp_path: Path, gputax: Gputax) -> None:
    words = (*CPU, "--window", "2s")  # however late the interrupt comes on a busy machine, it meets the second cell
    process = start(tmp_path, *words)
    wait_for(process, "[2/2]")
    wait_for(process, "measuring")
    workers = workers_of(process.pid)
    process.send_signal(signal.SIGINT)
    assert workers
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert "1 of 2 cells are kept" in errors
    assert gone(workers)
    first = read_document(SHARING, tmp_path / "o")
    done = gputax(*words)
    assert done.returncode == 0, done.stderr
    record = read_document(SHARING, tmp_path / "o")
    assert record.cells[0] == first.cells[0], "what was measured is not measured again"
    assert [cell.session for cell in record.cells] == [1, 2]


def test_a_tenant_that_fails_fails_its_cell_and_the_others_are_kept(gputax: Gputax, tmp_path: Path) -> None:
    # The first run and about 300 of the measurement: every cell fails, and the next one goes on.
    done = gputax("share", "--tech", "cpu-shared", "--engine", f"{ENGINE},fail_after=50", *SHORT, "--out", "o")
    assert done.returncode == 4, done.stderr
    record = read_document(SHARING, tmp_path / "o")
    assert len(record.failures) == 2
    assert record.cells == ()
    assert not record.complete
    assert "synthetic failure after 50 runs" in " ".join(done.stdout.split())
    assert "tenant " in record.failures[0].where


@control_groups.needed
def test_a_killed_coordinator_leaves_no_process_and_the_next_run_removes_its_groups(
    tmp_path: Path, gputax: Gputax
) -> None:
    words = ("share", "--tech", "cpu-quota", "--engine", ENGINE, "--tenants", "2", "--repeats", "1", "--warmup", "0.1s")
    process = start(tmp_path, *words, "--window", "60s", "--out", "o")
    wait_for(process, "measuring")
    workers = workers_of(process.pid)
    groups = control_groups.named(f"{PREFIX}{process.pid}-")
    assert groups
    process.kill()
    process.wait()
    assert gone(workers)
    done = gputax(*words, "--window", "0.5s", "--out", "p")
    assert done.returncode == 0, done.stderr
    assert not any(group.exists() for group in groups)
    evidence = read_document(SHARING, tmp_path / "p").cells[0].results[0].evidence
    assert evidence["quota_cpus"] == pytest.approx(len(os.sched_getaffinity(0)) / 2)


READ_ONLY = """
for place in $(findmnt -rn -t cgroup,cgroup2 -o TARGET); do mount -o remount,bind,ro "$place" || exit 99; done
exec "$@"
"""


def test_without_permission_a_named_quota_is_refused_and_a_default_one_is_left_out(tmp_path: Path) -> None:
    if os.getuid() != 0 or not shutil.which("unshare"):
        pytest.skip("needs root, to take away its right to make control groups")

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        common = ("--engine", ENGINE, "--window", "0.3s", "--warmup", "0.1s", "--repeats", "1", "--tenants", "1")
        command = [sys.executable, "-m", "gputax", "share", *words, *common, "--out", "o"]
        return subprocess.run([*inside, *command], cwd=tmp_path, capture_output=True, text=True, timeout=120)

    inside = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh"]
    tried = subprocess.run([*inside, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"control groups cannot be made read-only here: {tried.stderr}")
    named = call("--tech", "cpu-quota")
    assert named.returncode == 3, named.stderr
    assert "cannot create a control group with a CPU quota: Read-only file system" in named.stderr
    assert "Delegate=yes" in named.stderr
    assert not (tmp_path / "o").exists()
    default = call()
    assert default.returncode == 0, default.stderr
    assert "cpu-quota was skipped" in default.stderr
    assert "cpu-quota was skipped" in " ".join(default.stdout.split())
    assert {cell.technique for cell in read_document(SHARING, tmp_path / "o").cells} == {"cpu-shared"}


def test_a_disk_that_fills_up_in_the_middle_loses_nothing(tmp_path: Path, gputax: Gputax) -> None:
    with small_disk(tmp_path) as small:
        words = (*CPU[:-1], str(small / "o"))
        process = start(tmp_path, *words)
        wait_for(process, "[2/2]")
        fill(small / "ballast")
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 1, errors
        assert "the disk is full" in errors
        assert len(read_document(SHARING, small / "o").cells) == 1
        (small / "ballast").unlink()
        assert gputax(*words).returncode == 0
        assert len(read_document(SHARING, small / "o").cells) == 2
