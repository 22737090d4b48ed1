"""The life of an experiment: opened, resumed, refused, interrupted, and left without litter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gputax.errors import CellError, GputaxError, Interrupted, PreflightError, UsageError
from gputax.measure.experiment import Experiment, left_in_order, open_new
from gputax.measure.view import SilentView
from gputax.plan.cells import Cell, Setup
from gputax.results.documents.base import Failure
from gputax.results.documents.sharing import SharingRecord
from gputax.results.reading import COMPARISON, RUN, SHARING
from gputax.results.store import ResultDirectory, read_document

CELL = Cell(Setup("resnet50"), "saturate", 1)


class PlayedPlace:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1

    def files(self) -> Mapping[str, str]:
        return {"manifests/pod.yaml": "kind: Pod\n"}


class RecordingView(SilentView):
    def __init__(self) -> None:
        self.failures: list[Failure] = []

    def cell_failed(self, failure: Failure) -> None:
        self.failures.append(failure)


def empty(started_at: str, **changes: Any) -> SharingRecord:
    return SharingRecord(
        gputax_version="0", timestamp=started_at, complete=False, plan_id="p", plan={}, place="bare",
        workload="resnet50", device_label="x",
    ).model_copy(update=changes)  # fmt: skip


def opened(directory: Path, plan_id: str = "p", **changes: Any) -> Experiment[SharingRecord]:
    """An experiment whose cells are kept by their names in the claim: enough to tell done from not done."""
    return Experiment(
        SHARING, directory, changes.pop("view", SilentView()), diary_name="test", plan_id=plan_id,
        begin=lambda at: empty(at, plan_id=plan_id), done=lambda record: record.claim.split(), **changes,
    )  # fmt: skip


def measured(directory: Path, *cells: str, **changes: Any) -> SharingRecord:
    experiment = opened(directory, **changes)
    with experiment.running([CELL] * 3, PlayedPlace()):
        for number, name in enumerate(cells, start=1):
            with experiment.cell(name, CELL, number):
                experiment.update(claim=f"{experiment.record.claim} {name}".strip())
                experiment.ended(name, valid=True)
        experiment.finish(["a", "b", "c"])
    return experiment.record


def events(directory: Path) -> list[str]:
    return [json.loads(line)["event"] for line in (directory / "events.jsonl").read_text().splitlines()]


def test_what_was_measured_is_on_disk_with_its_diary_and_the_files_of_its_place(tmp_path: Path) -> None:
    record = measured(tmp_path / "o", "a", "b", "c")
    assert record.complete
    assert read_document(SHARING, tmp_path / "o") == record
    assert record.sessions == (record.timestamp,)
    assert (tmp_path / "o/manifests/pod.yaml").exists()
    assert events(tmp_path / "o") == ["test started", *["cell ended"] * 3, "test ended"]
    assert not (tmp_path / "o/.lock").exists()


def test_an_unfinished_one_of_the_same_plan_goes_on(tmp_path: Path) -> None:
    first = measured(tmp_path / "o", "a")
    assert not first.complete
    again = opened(tmp_path / "o")
    assert again.done == {"a"}
    assert again.record.timestamp == first.timestamp
    assert len(again.record.sessions) == 2
    again.store.close()


def test_a_failed_cell_is_kept_told_and_tried_again(tmp_path: Path) -> None:
    view = RecordingView()
    experiment = opened(tmp_path / "o", view=view)
    with experiment.running([CELL], PlayedPlace()):
        with experiment.cell("a", CELL, 1):
            raise CellError("it died", where="tenant 1", next_step="look")
        experiment.finish(["a"])
    (failure,) = read_document(SHARING, tmp_path / "o").failures
    assert (failure.cell, failure.what, failure.where, failure.next) == ("a", "it died", "tenant 1", "look")
    assert view.failures == [failure]
    assert not experiment.record.complete
    again = opened(tmp_path / "o")
    assert again.record.failures == ()
    again.store.close()


class TestRefused:
    def test_a_complete_one(self, tmp_path: Path) -> None:
        measured(tmp_path / "o", "a", "b", "c")
        with pytest.raises(UsageError, match="already complete") as raised:
            opened(tmp_path / "o")
        assert "--overwrite" in raised.value.next_step
        assert measured(tmp_path / "o", "a", overwrite=True).claim == "a"

    def test_another_plan(self, tmp_path: Path) -> None:
        measured(tmp_path / "o", "a")
        with pytest.raises(UsageError, match="another sharing experiment") as raised:
            opened(tmp_path / "o", plan_id="q")
        assert "--overwrite" in raised.value.next_step

    def test_the_directory_of_a_run_even_to_overwrite_it(self, tmp_path: Path) -> None:
        (tmp_path / RUN.file_name).write_text("{}")
        with pytest.raises(UsageError, match="contains a run, not a sharing experiment"):
            opened(tmp_path, overwrite=True)
        assert [each.name for each in tmp_path.iterdir()] == [RUN.file_name]

    def test_a_duet_where_there_are_results(self, tmp_path: Path) -> None:
        for kind, complaint in (
            (RUN, "contains a run, not a comparison"),
            (COMPARISON, "already contains a comparison"),
        ):
            directory = tmp_path / kind.experiment
            directory.mkdir()
            (directory / kind.file_name).write_text("{}")
            with pytest.raises(UsageError, match=complaint):
                open_new(COMPARISON, directory)
            assert [each.name for each in directory.iterdir()] == [kind.file_name]

    def test_another_machine(self, tmp_path: Path) -> None:
        here, there = ({"host": {"cpu_model": name}} for name in ("A CPU", "Other CPU"))
        experiment = opened(tmp_path / "o")
        experiment.described(experiment.record.model_copy(update={"fingerprint": here}))
        experiment.described(experiment.record.model_copy(update={"fingerprint": there}))
        experiment.update(claim="a")
        with pytest.raises(PreflightError, match=r"host\.cpu_model was Other CPU, is A CPU"):
            experiment.described(experiment.record.model_copy(update={"fingerprint": here}))
        experiment.store.close()


class TestInterrupted:
    def test_what_is_done_is_kept(self, tmp_path: Path) -> None:
        place, experiment = PlayedPlace(), opened(tmp_path / "o")
        experiment.update(claim="a")
        with pytest.raises(Interrupted, match="1 of 3 cells are kept") as raised, experiment.running([CELL] * 3, place):
            raise KeyboardInterrupt
        assert raised.value.next_step == "the same command resumes"
        assert place.closed
        assert read_document(SHARING, tmp_path / "o").claim == "a"
        assert events(tmp_path / "o")[-1] == "interrupted"
        assert not (tmp_path / "o/.lock").exists()

    def test_where_nothing_is_done_nothing_is_left_or_promised(self, tmp_path: Path) -> None:
        experiment = opened(tmp_path / "o")
        with pytest.raises(Interrupted, match="nothing was kept") as raised, experiment.running([CELL], PlayedPlace()):
            raise KeyboardInterrupt
        assert "resumes" not in raised.value.next_step
        assert not (tmp_path / "o").exists()

    def test_a_full_disk_keeps_the_rest(self, tmp_path: Path) -> None:
        experiment = opened(tmp_path / "o")
        experiment.update(claim="a")
        with pytest.raises(GputaxError, match="disk is full"), experiment.running([CELL], PlayedPlace()):
            raise GputaxError("the disk is full")
        assert measured(tmp_path / "o", "b", "c").complete


def test_what_measured_nothing_takes_only_its_own_files_away(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / SHARING.file_name).write_text("{}")
    store = ResultDirectory(tmp_path, COMPARISON)
    with left_in_order(store, PlayedPlace(), lambda: False, lambda: Interrupted("x")):
        store.append_event("started")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["notes.txt", SHARING.file_name]
