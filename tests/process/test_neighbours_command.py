"""Neighbours end to end: known disturbances are found, broken walls fail, and an interrupt loses nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pytest

from gputax import errors
from gputax.errors import PreflightError, UsageError
from gputax.measure.neighbours import cell as neighbours_cell
from gputax.measure.neighbours.cell import measure_beside
from gputax.measure.neighbours.execution import NeighboursRequest, measure_neighbours
from gputax.measure.neighbours.isolation import try_isolation
from gputax.measure.neighbours.slots import pairs_of, sample_columns
from gputax.measure.view import SilentView
from gputax.plan.cells import Setup
from gputax.plan.techniques import TECHNIQUES, SharePlan, Technique
from gputax.results.documents.sharing import SharingRecord
from gputax.results.reading import SHARING
from gputax.results.store import read_document, read_samples
from gputax.sharing.place import Say, Switched
from tests.standins import control_groups
from tests.standins.neighbourhood import Neighbourhood
from tests.standins.scripted_worker import State

IntArray = npt.NDArray[np.int64]
SHARED = TECHNIQUES["cpu-shared"]
SETUP = Setup("resnet50", "synthetic", "cpu", sample_count=1, max_batch=1)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours_cell, "RELEASE_S", 0.1)


def plan(setup: Setup = SETUP, repeats: int = 1) -> SharePlan:
    return SharePlan("bare", ("cpu-shared",), (2,), setup, repeats=repeats, warmup_s=0.05, window_s=0.25)


def request(directory: Path, *aggressors: str, overwrite: bool = False) -> NeighboursRequest:
    return NeighboursRequest(plan(), "single-stream", aggressors, directory / "out", overwrite=overwrite)


def measured(place: Neighbourhood, given: NeighboursRequest) -> SharingRecord:
    record = measure_neighbours(given, place, SilentView())
    assert place.left_over() == []
    assert place.closed >= 1
    return record


def verdicts(record: SharingRecord) -> dict[str, bool | None]:
    return {row.check: row.passed for row in record.isolation}


@dataclasses.dataclass(frozen=True)
class Truth:
    """What the victim itself knows of the runs that count, whatever else the machine had to do."""

    slot_ns: list[float]
    """Its mean time in each of the four slots: alone, beside, beside, alone."""
    slow: dict[bool, float]
    """Beside the neighbour and alone: the share of runs for which it meant to take 20 ms."""

    @property
    def ratios(self) -> list[float]:
        first, second, third, fourth = self.slot_ns
        return [second / first, third / fourth]


def truth_of(place: Neighbourhood, kept: dict[str, IntArray]) -> Truth:
    """Find each run that was measured in the victim's own list; its clock was read inside of ours."""
    runs = np.array(State(place.state).runs())
    own = runs[np.searchsorted(runs[:, 0], kept["start_ns"])]
    assert (own[:, 1] <= kept["end_ns"]).all()
    took_ns, counted, beside = own[:, 1] - own[:, 0], kept["counted"] == 1, kept["beside"] == 1
    return Truth(
        [float(took_ns[counted & (kept["slot"] == slot)].mean()) for slot in range(4)],
        {each: float(own[counted & (beside == each), 2].mean()) for each in (False, True)},
    )


def test_a_known_slowdown_is_found_and_kept(tmp_path: Path) -> None:
    given = request(tmp_path, "compute")
    place = Neighbourhood(tmp_path)
    record = measured(place, given)
    (row,) = record.neighbours
    assert (row.technique, row.aggressor, row.pairs, row.valid) == ("cpu-shared", "compute", 2, True)
    assert row.slowdown_percent.ci95 is not None
    assert row.p99_slowdown_percent is None, "two pairs carry no p99"
    assert record.device_label == "CPU (script), not a GPU"
    assert record.complete
    assert read_document(SHARING, given.directory).model_dump(mode="json") == record.model_dump(mode="json")
    kept = read_samples(given.directory / "samples/neighbour-cpu-shared-compute.parquet")
    assert set(kept["slot"]) == {0, 1, 2, 3}
    truth = truth_of(place, kept)
    assert truth.slow[False] == 0
    assert truth.slow[True] > 0.5, "the victim takes 20 ms instead of 10 ms, unless its neighbour got no CPU at all"
    assert row.slowdown_percent.value == pytest.approx(100 * (np.prod(truth.ratios) ** 0.5 - 1), abs=5.0)
    assert row.alone_ms == pytest.approx((truth.slot_ns[0] + truth.slot_ns[3]) / 2e6, rel=0.05)
    alone = kept["beside"] == 0
    assert alone.any()
    assert not alone.all()
    assert not kept["counted"][np.r_[True, np.diff(kept["slot"]) > 0]].any(), "the first run of a slot is dropped"
    with pytest.raises(UsageError, match="already complete"):
        measured(Neighbourhood(tmp_path), given)
    with pytest.raises(UsageError, match="another sharing experiment"):
        measured(Neighbourhood(tmp_path), request(tmp_path, "memory"))


def test_a_victim_that_nothing_disturbs_shows_no_slowdown(tmp_path: Path) -> None:
    place = Neighbourhood(tmp_path, "indifferent")
    result = measure_beside(place, SHARED, plan(), "copies", SilentView())
    ratios = [pair.beside_ns.mean() / pair.alone_ns.mean() for pair in pairs_of(result.slots)]
    truth = truth_of(place, sample_columns(result.slots))
    assert truth.slow == {False: 0, True: 0}
    assert ratios == pytest.approx(truth.ratios, rel=0.05), "all runs mean to take 10 ms"
    assert place.left_over() == []


def test_matrix_products_on_the_same_core_take_their_half(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    victim = Setup("neighbour:compute", "neighbour:kind=compute", "cpu", threads=1, sample_count=1, max_batch=1)
    place = Neighbourhood(tmp_path, core=core)
    with control_groups.weighty() as group:  # so that the two share the core with each other and hardly with a third
        place.words = control_groups.inside(group, place.words)
        result = measure_beside(place, SHARED, plan(victim), "compute", SilentView())
    ratios = [pair.beside_ns.mean() / pair.alone_ns.mean() for pair in pairs_of(result.slots)]
    # Two that always compute halve the core; in a short slot the kernel favours the one that has just slept.
    assert 1.3 < float(np.mean(ratios)) < 4.0
    assert result.aggressor_facts["threads"] == 1, "as many as the cores that it may use"


def test_a_crash_that_stays_with_its_tenant_passes(tmp_path: Path) -> None:
    record = measured(Neighbourhood(tmp_path), request(tmp_path, "crash"))
    assert verdicts(record)["a crash stays with its tenant"] is True
    (crash,) = (row for row in record.isolation if "crash" in row.check)
    assert len(crash.evidence["ends"]) >= 2, "one for each slot beside it at least"
    assert set(crash.evidence["ends"]) == {"was killed by signal 9"}
    assert record.neighbours[0].aggressor == "crash"
    assert record.failures == ()


def test_a_crash_that_takes_the_victim_along_fails(tmp_path: Path) -> None:
    record = measured(Neighbourhood(tmp_path, "takes-victim-along"), request(tmp_path, "crash"))
    assert verdicts(record)["a crash stays with its tenant"] is False
    assert record.neighbours == (), "a victim that died gives no number"
    assert "the victim did not continue" in record.failures[0].what
    assert record.complete, "the answer is known: it is no"


def test_a_crash_after_which_nothing_can_start_fails(tmp_path: Path) -> None:
    given = request(tmp_path, "crash")
    record = measured(Neighbourhood(tmp_path, "never-again"), given)
    assert verdicts(record)["a crash stays with its tenant"] is False
    assert any("no new tenant could start" in failure.what for failure in record.failures)


def test_tenants_that_share_their_memory_fail(tmp_path: Path) -> None:
    place = Neighbourhood(tmp_path, "one-memory")
    rows = {row.check: row for row in try_isolation(place, SHARED, plan(), "cpu")}
    assert rows["no foreign memory readable"].passed is False
    assert "the secret was read" in rows["no foreign memory readable"].text
    assert place.left_over() == []


def test_without_evidence_there_is_no_number_and_no_verdict(tmp_path: Path) -> None:
    place = Neighbourhood(tmp_path)
    place.reasons = ["the tenants are on two devices"]
    record = measured(place, request(tmp_path, "launches"))
    (row,) = record.neighbours
    assert row.valid is False
    assert row.slowdown_percent.value is None
    assert row.warnings[0].text == "the tenants are on two devices"
    assert set(verdicts(record).values()) == {None}


class WithoutQuota(Neighbourhood):
    """A place that knows ahead that one technique, or all of them, cannot be had."""

    impossible_here: tuple[str, ...] = ("cpu-quota",)

    def impossible(self, technique: Technique, setup: Setup) -> PreflightError | None:
        here = technique.name in self.impossible_here
        return PreflightError("no group may be made", next_step="be root") if here else None


def test_a_technique_that_was_named_and_is_impossible_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    both = dataclasses.replace(plan(), techniques=("cpu-shared", "cpu-quota"))
    given = dataclasses.replace(request(tmp_path, "compute"), plan=both)
    place = WithoutQuota(tmp_path)
    with pytest.raises(PreflightError, match="no group may be made"):
        measured(place, given)
    assert not given.directory.exists()
    place.impossible_here = ("cpu-shared", "cpu-quota")
    with pytest.raises(PreflightError):
        measured(place, dataclasses.replace(given, optional=True))
    assert place.started == []


def test_a_technique_that_was_not_named_is_left_out_aloud_and_an_early_interrupt_leaves_nothing(tmp_path: Path) -> None:
    class Interrupted(WithoutQuota):
        def switch(self, technique: Technique, parts: int, say: Say) -> Switched:
            super().switch(technique, parts, say)
            raise KeyboardInterrupt

    class Listening(SilentView):
        phases: ClassVar[list[str]] = []

        def phase(self, text: str) -> None:
            self.phases.append(text)

    both = dataclasses.replace(plan(), techniques=("cpu-shared", "cpu-quota"))
    given = dataclasses.replace(request(tmp_path, "compute"), plan=both, optional=True)
    place = Interrupted(tmp_path)
    with pytest.raises(errors.Interrupted, match="nothing was kept"):
        measure_neighbours(given, place, Listening())
    assert Listening.phases == ["cpu-quota was skipped: no group may be made. Next: be root"]
    assert place.switched == ["cpu-shared"]
    assert place.closed >= 1
    assert not given.directory.exists()


def test_another_victim_or_neighbour_is_another_experiment(tmp_path: Path) -> None:
    given = request(tmp_path, "compute", "memory")
    assert given.plan_id == request(tmp_path, "memory", "compute").plan_id, "the order of words says nothing"
    others = [request(tmp_path, "compute"), dataclasses.replace(given, plan=plan(repeats=2))]
    assert len({given.plan_id, given.plan.id, *(other.plan_id for other in others)}) == 4
    assert given.cells() == ("cpu-shared-compute", "cpu-shared-memory", "cpu-shared-isolation")


COMMAND = [
    *("share", "--tech", "proxy", "--victim", "single-stream", "--aggressor", "launches,crash", "--repeats", "1"),
    *("--window", "0.2s", "--warmup", "0.05s", "--proxy-memory-mb", "200", "--out", "out", "--json"),
]


def started_in(directory: Path) -> list[str]:
    """Return the processes that were started in the directory: workers, and a proxy."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink() == directory:
                found.append((process / "cmdline").read_text().replace("\0", " "))
    return found


def test_behind_the_proxy_an_interrupt_is_resumed_and_all_walls_hold(tmp_path: Path) -> None:
    """The command as a user types it: stopped after the first neighbour, started again, judged at the end."""
    words = [sys.executable, "-m", "gputax", *COMMAND]
    first = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    path = tmp_path / "out" / "sharing.json"
    deadline = time.monotonic() + 60
    while not (path.exists() and json.loads(path.read_text())["neighbours"]):
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.send_signal(signal.SIGINT)
    _, errors = first.communicate(timeout=60)
    assert first.returncode == 130, errors
    assert started_in(tmp_path) == []
    before = read_document(SHARING, tmp_path / "out")
    assert [row.aggressor for row in before.neighbours] == ["launches"]
    assert not before.complete
    second = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    record = SharingRecord.model_validate_json(second.stdout)
    assert second.returncode == 0, second.stderr
    assert record.neighbours[0] == before.neighbours[0], "what was measured is not measured again"
    assert [row.aggressor for row in record.neighbours] == ["launches", "crash"]
    assert len(record.sessions) == 2
    assert record.device_label == "software device (gputax software device), not a GPU"
    assert verdicts(record) == dict.fromkeys(
        ("a crash stays with its tenant", "memory quota holds", "no foreign memory readable"), True
    )
    texts = {row.check: row.text for row in record.isolation}
    # A context counts too, so that the last piece of 1 MiB does not fit.
    assert "one tenant took 199 of its 200 MiB, then CUDA_ERROR_OUT_OF_MEMORY" in texts["memory quota holds"]
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in texts["no foreign memory readable"]
    assert record.complete
