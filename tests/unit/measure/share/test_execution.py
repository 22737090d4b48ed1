"""An experiment from its first cell to its record, with a place and cells that are played."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gputax.environments.environment import Described, Evidence
from gputax.errors import CellError, GputaxError, Interrupted, PreflightError, UsageError, WorkerError
from gputax.measure.share import execution as share
from gputax.measure.share.cell import SharedMeasurement
from gputax.measure.share.execution import ShareRequest, measure_sharing
from gputax.measure.view import SilentView
from gputax.plan.cells import Setup
from gputax.plan.notices import Notice
from gputax.plan.techniques import ShareCell, SharePlan, Technique
from gputax.results.documents.sharing import CrossCheck, SharingRecord
from gputax.results.reading import SHARING
from gputax.results.store import read_document, read_samples
from gputax.sharing.place import Say, Switched, Tenant
from tests.builders.shared_cells import measurement

PLAN = SharePlan("bare", ("cpu-shared", "cpu-quota"), (1, 3), Setup("yolos-small"), repeats=2)
Play = Callable[[ShareCell], SharedMeasurement]


class PlayedPlace:
    """A place that writes down what it was asked to do."""

    name = "bare"

    def __init__(self, never_on: str = "") -> None:
        self.never_on = never_on
        self.switches: list[str] = []
        self.closed = 0

    def switch(self, technique: Technique, parts: int, say: Say) -> Switched:
        self.switches.append(technique.name)
        if technique.name == self.never_on:
            raise PreflightError(f"{technique.name} never came", next_step="look at the node")
        return Switched(1.5, {"parts": parts})

    def tenants(self, technique: Technique, count: int, parts: int, setup: Setup) -> list[Tenant]:
        return []

    def evidence(self, technique: Technique, tenants: Sequence[Evidence], described: Sequence[Described]) -> Evidence:
        return Evidence({"active": True})

    def files(self) -> dict[str, str]:
        return {"manifests/pod.yaml": "kind: Pod\n"}

    def close(self) -> None:
        self.closed += 1


class FarSeeing(PlayedPlace):
    """A place that knows at once what is impossible."""

    def impossible(self, technique: Technique, setup: Setup) -> PreflightError | None:
        return PreflightError("no cgroup", next_step="be root") if technique.name == self.never_on else None


class RecordingView(SilentView):
    def __init__(self) -> None:
        self.phases: list[str] = []

    def phase(self, text: str) -> None:
        self.phases.append(text)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Play], list[str]]:
    """Let a function play the cells; returns the list of those that were measured."""

    def with_cells(one: Play) -> list[str]:
        measured: list[str] = []

        def played(plan: SharePlan, cell: ShareCell, place: Any, switched: Switched, *rest: Any) -> SharedMeasurement:
            measured.append(cell.id)
            return dataclasses.replace(one(cell), switched=switched)

        monkeypatch.setattr(share, "measure_shared_cell", played)
        return measured

    return with_cells


def run(directory: Path, place: PlayedPlace, view: SilentView | None = None, **changes: Any) -> SharingRecord:
    request = ShareRequest(PLAN, directory, **changes)
    return measure_sharing(request, place, view or SilentView())


def ordinary(cell: ShareCell) -> SharedMeasurement:
    return measurement(cell, run_ms=10.0 * cell.tenants + cell.repeat)


def test_every_cell_is_measured_and_kept_with_its_samples(tmp_path: Path, play: Callable[[Play], list[str]]) -> None:
    measured = play(ordinary)
    place = PlayedPlace()
    record = run(tmp_path / "o", place)
    assert measured == [cell.id for cell in PLAN.cells()]
    assert record == read_document(SHARING, tmp_path / "o")
    assert record.complete
    assert len(record.rows) == 4
    assert record.rows[1].slowdown.value == pytest.approx((31 * 32 / (11 * 12)) ** 0.5)
    for cell in record.cells:
        columns = read_samples(tmp_path / "o" / cell.results[0].samples_file)
        assert len(columns["tenant"]) == 100 * cell.tenants
    assert place.closed
    assert (tmp_path / "o/manifests/pod.yaml").exists()
    assert set(json.loads((tmp_path / "o/environment.json").read_text())) == set(PLAN.techniques)


def test_a_switch_happens_once_for_neighbouring_cells_and_its_time_is_the_first_ones(
    tmp_path: Path, play: Callable[[Play], list[str]]
) -> None:
    play(ordinary)
    place = PlayedPlace()
    record = run(tmp_path / "o", place)
    order = [cell.technique for cell in PLAN.cells()]
    changes = [name for before, name in zip(["", *order], order, strict=False) if before != name]
    assert place.switches == changes
    assert [cell.switched_s for cell in record.cells].count(1.5) == len(changes)


def test_a_cell_that_fails_leaves_the_others_and_is_tried_again(
    tmp_path: Path, play: Callable[[Play], list[str]]
) -> None:
    def failing(cell: ShareCell) -> SharedMeasurement:
        if cell.id == "cpu-quota-t3-r1":
            raise CellError("tenant 2 died", where="tenant 2 of 3")
        return ordinary(cell)

    play(failing)
    record = run(tmp_path / "o", PlayedPlace())
    assert [failure.cell for failure in record.failures] == ["cpu-quota-t3-r1"]
    assert len(record.cells) == len(PLAN.cells()) - 1
    assert not record.complete
    measured = play(ordinary)
    again = run(tmp_path / "o", PlayedPlace())
    assert measured == ["cpu-quota-t3-r1"]
    assert again.complete
    assert [cell.session for cell in again.cells] == [1] * 7 + [2]


def test_an_unproven_cell_is_kept_as_invalid_and_is_in_no_row(
    tmp_path: Path, play: Callable[[Play], list[str]]
) -> None:
    play(lambda cell: measurement(cell, active=cell.technique != "cpu-quota"))
    record = run(tmp_path / "o", PlayedPlace())
    assert {cell.technique for cell in record.cells if not cell.valid} == {"cpu-quota"}
    assert {row.technique for row in record.rows} == {"cpu-shared"}


class TestImpossible:
    def test_a_technique_that_was_named_is_refused_before_anything_is_written(
        self, tmp_path: Path, play: Callable[[Play], list[str]]
    ) -> None:
        measured = play(ordinary)
        place = FarSeeing("cpu-quota")
        with pytest.raises(PreflightError, match="no cgroup"):
            run(tmp_path / "o", place)
        assert measured == []
        assert not (tmp_path / "o").exists()
        assert place.closed

    @pytest.mark.parametrize("kind", [FarSeeing, PlayedPlace], ids=["known ahead", "found at the switch"])
    def test_a_default_technique_is_left_out_aloud(
        self, tmp_path: Path, play: Callable[[Play], list[str]], kind: type[PlayedPlace]
    ) -> None:
        measured, view = play(ordinary), RecordingView()
        record = run(tmp_path / "o", kind("cpu-quota"), view, optional=True)
        assert {cell.split("-t")[0] for cell in measured} == {"cpu-shared"}
        assert any("cpu-quota was skipped" in phase for phase in view.phases)
        assert [warning.code for warning in record.warnings] == ["technique-left-out"]
        assert record.complete

    @pytest.mark.parametrize("kind", [FarSeeing, PlayedPlace], ids=["known ahead", "found at the switch"])
    def test_where_nothing_is_left_the_reason_is_the_answer(
        self, tmp_path: Path, play: Callable[[Play], list[str]], kind: type[PlayedPlace]
    ) -> None:
        play(ordinary)
        plan = dataclasses.replace(PLAN, techniques=("cpu-quota",))
        request = ShareRequest(plan, tmp_path / "o", optional=True)
        with pytest.raises(PreflightError):
            measure_sharing(request, kind("cpu-quota"), SilentView())
        assert not (tmp_path / "o").exists()


def test_an_interrupt_keeps_what_is_done_and_the_same_plan_goes_on(
    tmp_path: Path, play: Callable[[Play], list[str]]
) -> None:
    def interrupted(cell: ShareCell) -> SharedMeasurement:
        if cell == PLAN.cells()[2]:
            raise KeyboardInterrupt
        return ordinary(cell)

    play(interrupted)
    place = PlayedPlace()
    with pytest.raises(Interrupted, match="2 of 8 cells are kept"):
        run(tmp_path / "o", place)
    assert place.closed
    first = read_document(SHARING, tmp_path / "o")
    measured = play(ordinary)
    record = run(tmp_path / "o", PlayedPlace())
    assert measured == [cell.id for cell in PLAN.cells()[2:]]
    assert record.cells[:2] == first.cells
    with pytest.raises(UsageError, match="already complete"):
        run(tmp_path / "o", PlayedPlace())
    measured.clear()
    assert run(tmp_path / "o", PlayedPlace(), overwrite=True).complete
    assert len(measured) == 8


def test_an_interrupt_before_the_first_cell_ended_promises_nothing(
    tmp_path: Path, play: Callable[[Play], list[str]]
) -> None:
    def interrupted(cell: ShareCell) -> SharedMeasurement:
        raise KeyboardInterrupt

    play(interrupted)
    with pytest.raises(Interrupted, match="nothing was kept") as raised:
        run(tmp_path / "o", PlayedPlace())
    assert raised.value.where == ""
    assert "resumes" not in raised.value.next_step
    assert not (tmp_path / "o").exists()


AGAIN = "the same command retries the failed cells; if memory is short, use fewer --tenants"


@pytest.mark.parametrize(("words", "expected"), [("none", AGAIN), ("oops", f"{AGAIN}; last stderr output: oops")])
def test_a_killed_worker_has_a_next_step(
    tmp_path: Path, play: Callable[[Play], list[str]], words: str, expected: str
) -> None:
    def killed(cell: ShareCell) -> SharedMeasurement:
        what = "the worker was killed by signal 9 (out of memory?) before it answered"
        raise WorkerError(what, next_step=f"last stderr output: {words}")

    play(killed)
    assert run(tmp_path / "o", PlayedPlace()).failures[0].next == expected


def test_a_resume_under_other_conditions_is_refused(tmp_path: Path, play: Callable[[Play], list[str]]) -> None:
    def failing(cell: ShareCell) -> SharedMeasurement:
        if cell == PLAN.cells()[-1]:
            raise CellError("later")
        return ordinary(cell)

    play(failing)
    run(tmp_path / "o", PlayedPlace())

    def elsewhere(cell: ShareCell) -> SharedMeasurement:
        measured = ordinary(cell)
        described = Described({**measured.proof.described[0].to_dict(), "host": {"cpu_model": "Other CPU"}})
        proof = dataclasses.replace(measured.proof, described=(described,) * cell.tenants)
        return dataclasses.replace(measured, proof=proof)

    play(elsewhere)
    with pytest.raises(PreflightError, match="Other CPU"):
        run(tmp_path / "o", PlayedPlace())


class TestPrometheus:
    def test_its_word_is_kept_beside_ours(
        self, tmp_path: Path, play: Callable[[Play], list[str]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from gputax.measure.share import cross_check

        asked: list[tuple[Any, ...]] = []

        def answer(url: str, *words: Any, **named: Any) -> CrossCheck:
            asked.append((url, *words))
            return CrossCheck(query="q", prometheus_ms=10.1, ours_ms=10.0, difference_percent=1.0)

        monkeypatch.setattr(cross_check, "cross_check", answer)
        monkeypatch.setattr(cross_check, "silence", lambda url: None)
        play(ordinary)
        record = run(tmp_path / "o", PlayedPlace(), prometheus="http://p")
        assert all(cell.cross_check is not None for cell in record.cells)
        first = record.cells[0]
        assert asked[0] == ("http://p", first.window_s, first.technique, first.tenants, first.mean_ms)

    def test_one_that_is_silent_is_a_warning(
        self, tmp_path: Path, play: Callable[[Play], list[str]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from gputax.measure.share import cross_check

        monkeypatch.setattr(cross_check, "cross_check", lambda *words, **named: Notice("prometheus", "silent"))
        monkeypatch.setattr(cross_check, "silence", lambda url: Notice("prometheus", f"{url} did not answer"))
        play(ordinary)
        view = RecordingView()
        record = run(tmp_path / "o", PlayedPlace(), view, prometheus="http://p")
        assert view.phases[0] == "WARNING: http://p did not answer", "before the first cell"
        assert record.complete
        assert {warning.code for cell in record.cells for warning in cell.warnings} == {"prometheus"}


def test_exclusive_without_its_one_tenant_is_refused(tmp_path: Path) -> None:
    plan = SharePlan("k8s", ("exclusive",), (3,), Setup("yolos-small"))
    with pytest.raises(UsageError, match="exclusive needs one tenant"):
        measure_sharing(ShareRequest(plan, tmp_path / "o"), PlayedPlace(), SilentView())
    assert not (tmp_path / "o").exists()


def test_a_technique_that_was_left_out_once_is_tried_again(tmp_path: Path, play: Callable[[Play], list[str]]) -> None:
    def failing(cell: ShareCell) -> SharedMeasurement:
        raise CellError("later") if cell.repeat == 2 else CellError("now")

    play(failing)
    assert run(tmp_path / "o", FarSeeing("cpu-quota"), optional=True).warnings
    play(ordinary)
    record = run(tmp_path / "o", FarSeeing(), optional=True)
    assert record.warnings == ()
    assert len(record.cells) == 8


def test_an_error_that_is_no_cells_own_ends_the_run_and_keeps_the_rest(
    tmp_path: Path, play: Callable[[Play], list[str]]
) -> None:
    def full(cell: ShareCell) -> SharedMeasurement:
        if cell == PLAN.cells()[1]:
            raise GputaxError("the disk is full")
        return ordinary(cell)

    play(full)
    with pytest.raises(GputaxError, match="disk is full"):
        run(tmp_path / "o", PlayedPlace())
    assert len(read_document(SHARING, tmp_path / "o").cells) == 1
