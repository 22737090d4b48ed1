"""Run a sharing experiment cell by cell; each is written when it ends, and an interrupt loses nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputax.errors import CellError, GputaxError, Interrupted, PreflightError, UsageError
from gputax.measure.run.execution import refuse_other_conditions
from gputax.measure.share.cell import SharedMeasurement, measure_shared_cell
from gputax.measure.share.documents import (
    described_sharing,
    empty_sharing,
    samples_name,
    shared_cell_document,
    shared_rows,
    shown_benchmark,
    shown_cell,
)
from gputax.measure.view import RunView
from gputax.plan.notices import Notice
from gputax.plan.techniques import TECHNIQUES, ShareCell, SharePlan
from gputax.results.documents.run import Failure, with_notices
from gputax.results.documents.sharing import SharedCell, SharingRecord
from gputax.results.reading import read_json
from gputax.results.sharing_store import discard_sharing, resumable, write_sharing
from gputax.results.store import ResultDirectory, now_text
from gputax.sharing.place import KnowsAhead, SharedPlace, Switched

LEFT_OUT = "technique-left-out"
LAST_WORDS = "its last words"


@dataclass(frozen=True)
class ShareRequest:
    """What was asked for."""

    plan: SharePlan
    directory: Path
    command: str = ""
    overwrite: bool = False
    optional: bool = False
    """The techniques were not named: one that is impossible here is left out aloud instead of refused."""
    stall_timeout_s: float = 0.0
    prometheus: str = ""


def measure_sharing(request: ShareRequest, place: SharedPlace, view: RunView) -> SharingRecord:
    """Measure every cell that is not there yet and put the place back; returns the record as it is on disk."""
    try:
        return ShareRun(request, place, view).execute()
    finally:
        place.close()


class ShareRun:
    """One experiment into one directory."""

    def __init__(self, request: ShareRequest, place: SharedPlace, view: RunView) -> None:
        self._request, self._plan, self._place, self._view = request, request.plan, place, view
        self._left_out: dict[str, PreflightError] = {}
        self._switched: tuple[str, Switched] | None = None
        self._environments: dict[str, Any] = {}
        if not self._plan.cells():
            raise UsageError("exclusive means one tenant, which is not asked for", next_step="add 1 to --tenants")
        self._check_ahead()
        self._store = ResultDirectory(request.directory)
        try:
            existing = resumable(self._store, self._plan.id, overwrite=request.overwrite)
            if existing is None:
                self.record = empty_sharing(self._plan, now_text(), request.command)
            else:
                self._environments = self._known_environments()
                kept = tuple(each for each in existing.warnings if each.code != LEFT_OUT)
                self.record = existing.model_copy(
                    update={"failures": (), "warnings": kept, "sessions": (*existing.sessions, now_text())}
                )
            self._note_left_out()
            write_sharing(self._store, self.record)
        except BaseException:
            self._store.close()
            raise

    def execute(self) -> SharingRecord:
        """Measure every cell that is not there yet."""
        cells = [cell for cell in self._plan.cells() if cell.technique not in self._left_out]
        done = {cell.cell for cell in self.record.cells}
        shown = tuple(shown_cell(self._plan, cell) for cell in cells)
        self._view.run_started(str(self._store.path), shown, len(done))
        self._store.append_event("sharing started", cells=len(cells), resumed=len(done))
        try:
            self._ask_prometheus()
            for number, cell in enumerate(cells, start=1):
                if cell.id not in done and cell.technique not in self._left_out:
                    self._view.cell_started(shown[number - 1], number)
                    self._one(cell)
            if not self.record.cells and not self.record.failures:
                raise next(iter(self._left_out.values()))
            self._update(complete=not self.record.failures)  # so that the same command tries the failed cells again
            self._store.append_event("sharing ended")
        except KeyboardInterrupt as error:
            self._store.append_event("interrupted")
            raise self._interrupted(len(cells)) from error
        finally:
            self._leave()
        return self.record

    def _interrupted(self, planned: int) -> Interrupted:
        if not self.record.cells and not self.record.failures:
            return Interrupted(
                "interrupted before the first cell ended; nothing was kept", next_step="the same command begins anew"
            )
        return Interrupted(
            f"interrupted; {len(self.record.cells)} of {planned} cells are kept",
            where=str(self._store.path),
            next_step="the same command resumes",
        )

    def _ask_prometheus(self) -> None:
        """Say before the first cell that nobody answers there: after an hour it would be too late."""
        if self._request.prometheus:
            from gputax.measure.share.cross_check import silence

            silent = silence(self._request.prometheus)
            if silent is not None:
                self._view.phase(f"WARNING: {silent.text}")

    def _leave(self) -> None:
        try:
            self._place.close()
            if self.record.cells:
                for name, text in self._place.files().items():
                    self._store.write_text(name, text)
        finally:
            if not self.record.cells and not self.record.failures:
                discard_sharing(self._store)
            self._store.close()

    def _known_environments(self) -> dict[str, Any]:
        path = self._store.path / "environment.json"
        return dict(read_json(path)) if path.exists() else {}

    def _check_ahead(self) -> None:
        """Refuse or leave out, before anything is written, what the place knows to be impossible."""
        if not isinstance(self._place, KnowsAhead):
            return
        for name in self._plan.techniques:
            error = self._place.impossible(TECHNIQUES[name], self._plan.setup)
            if error is not None:
                self._leave_out(name, error)
        if len(self._left_out) == len(self._plan.techniques):
            raise next(iter(self._left_out.values()))

    def _leave_out(self, technique: str, error: PreflightError) -> None:
        if not self._request.optional:
            raise error
        self._left_out[technique] = error
        self._view.phase(f"{technique} is left out: {error.what}. {error.next_step}")

    def _note_left_out(self) -> None:
        notices = [
            Notice(LEFT_OUT, f"{name} was left out: {error.what}. Next: {error.next_step}")
            for name, error in self._left_out.items()
        ]
        self.record = self.record.model_copy(update={"warnings": with_notices(self.record.warnings, notices)})

    def _one(self, cell: ShareCell) -> None:
        started_at = now_text()
        try:
            switched = self._switch(cell)
        except PreflightError as error:
            self._leave_out(cell.technique, error)
            self._note_left_out()
            self._update()
            return
        try:
            measured = measure_shared_cell(
                self._plan, cell, self._place, switched, self._view, self._request.stall_timeout_s
            )
        except (UsageError, PreflightError):
            raise  # the whole experiment cannot be right; what was measured before is kept
        except CellError as error:
            self._fail(cell, error)
            return
        self._keep(measured, started_at)

    def _switch(self, cell: ShareCell) -> Switched:
        """Bring the device to the cell's technique; the time that it took belongs to the first cell after it."""
        if self._switched is not None and self._switched[0] == cell.technique:
            return Switched(0.0, self._switched[1].facts)
        self._switched = None
        technique = TECHNIQUES[cell.technique]
        self._view.phase(f"switching to {technique.name}")
        switched = self._place.switch(technique, self._plan.parts, self._view.phase)
        self._switched = (technique.name, switched)
        self._store.append_event("switched", technique=technique.name, seconds=round(switched.seconds, 3))
        return switched

    def _keep(self, measured: SharedMeasurement, started_at: str) -> None:
        cell = measured.cell
        described = described_sharing(self.record, measured)
        if self.record.cells:
            refuse_other_conditions(self.record.fingerprint, described.fingerprint, str(self._store.path))
        self.record = described
        document = shared_cell_document(measured, started_at, len(self.record.sessions))
        if self._request.prometheus:
            document = self._cross_checked(measured, document)
        self._environments[cell.technique] = measured.proof.described[0].to_dict()
        self._store.write_json("environment.json", self._environments)
        self._store.write_samples(samples_name(cell), measured.columns)
        cells = (*self.record.cells, document)
        self._update(cells=cells, rows=shared_rows(cells))
        self._store.append_event("cell ended", cell=cell.id, valid=document.valid)
        self._view.cell_ended(shown_benchmark(self._plan, measured, document, str(self.record.device)))

    def _cross_checked(self, measured: SharedMeasurement, document: SharedCell) -> SharedCell:
        """Ask Prometheus for the same mean; one that does not answer leaves a warning and no hole."""
        from gputax.measure.share.cross_check import cross_check

        pods = [str(each.fact("pod")) for each in measured.proof.evidences if each.fact("pod")]
        found = cross_check(
            self._request.prometheus,
            measured.window.seconds,
            document.technique,
            document.tenants,
            document.mean_ms,
            pods=pods,
            ended_s=measured.ended_s,
        )
        if isinstance(found, Notice):
            return document.model_copy(update={"warnings": with_notices(document.warnings, [found])})
        return document.model_copy(update={"cross_check": found})

    def _fail(self, cell: ShareCell, error: GputaxError) -> None:
        failure = Failure(
            cell=cell.id, kind=type(error).__name__, what=error.what, where=error.where, next=_next_step(error)
        )
        self._update(failures=(*self.record.failures, failure))
        self._store.append_event("cell failed", cell=cell.id, what=error.what)
        self._view.cell_failed(failure)

    def _update(self, **changes: object) -> None:
        self.record = self.record.model_copy(update=changes)
        write_sharing(self._store, self.record)


def _next_step(error: GputaxError) -> str:
    """Return what to do about a failed cell; a worker that was killed tells at most its last words."""
    if error.next_step and not error.next_step.startswith(LAST_WORDS):
        return error.next_step
    fewer = "; where memory is short: fewer --tenants" if "out of memory" in error.what else ""
    words = f"; {error.next_step}" if error.next_step.removeprefix(LAST_WORDS).strip(": ") not in ("", "none") else ""
    return f"the same command tries the failed cells again{fewer}{words}"
