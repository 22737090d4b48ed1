"""Run a sharing experiment cell by cell; each is saved when it ends, so an interrupt loses nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputax.environments.connection import LAST_OUTPUT
from gputax.errors import CellError, GputaxError, PreflightError, UsageError
from gputax.measure.experiment import Experiment, SkippedTechniques
from gputax.measure.share.asking import refuse_shares
from gputax.measure.share.cell import SharedMeasurement, measure_shared_cell
from gputax.measure.share.documents import (
    described_sharing,
    empty_sharing,
    samples_name,
    shared_cell_document,
    shared_rows,
    shown_cell,
    shown_figures,
)
from gputax.measure.share.obtained import obtained_rows
from gputax.measure.view import RunView
from gputax.plan.notices import Notice
from gputax.plan.shares import AskingPlan
from gputax.plan.techniques import TECHNIQUES, ShareCell, SharePlan
from gputax.results.documents.base import with_notices
from gputax.results.documents.sharing import SharedCell, SharingRecord
from gputax.results.reading import SHARING, read_json
from gputax.results.store import now_text
from gputax.sharing.place import SharedPlace, Switched
from gputax.worker.probes.limits import cpu_allowance


@dataclass(frozen=True)
class ShareRequest:
    """The requested experiment."""

    plan: SharePlan
    directory: Path
    command: str = ""
    overwrite: bool = False
    optional: bool = False
    """The techniques were not named: one that is impossible here is skipped with a warning instead of refused."""
    stall_timeout_s: float = 0.0
    prometheus: str = ""
    accept_disturbed: bool = False


def measure_sharing(request: ShareRequest, place: SharedPlace, view: RunView) -> SharingRecord:
    """Measure every missing cell and restore the place; returns the record as it is on disk."""
    try:
        return ShareRun(request, place, view).execute()
    finally:
        place.close()


class ShareRun:
    """One experiment into one directory."""

    def __init__(self, request: ShareRequest, place: SharedPlace, view: RunView) -> None:
        self._request, self._plan, self._place, self._view = request, request.plan, place, view
        self._switched: tuple[str, Switched] | None = None
        if not self._plan.cells():
            raise UsageError("exclusive needs one tenant, which is not in --tenants", next_step="add 1 to --tenants")
        self._skipped = SkippedTechniques(self._plan, view, named=not request.optional)
        self._skipped.ask(place)
        if isinstance(self._plan, AskingPlan):
            refuse_shares(place, self._plan, self._skipped.remaining)
        self._experiment = Experiment(
            SHARING,
            request.directory,
            view,
            diary_name="sharing",
            plan_id=self._plan.id,
            begin=lambda at: empty_sharing(self._plan, at, request.command),
            done=lambda record: {cell.cell for cell in record.cells},
            overwrite=request.overwrite,
        )

    def execute(self) -> SharingRecord:
        """Measure every missing cell."""
        experiment = self._experiment
        cells = [cell for cell in self._plan.cells() if cell.technique not in self._skipped]
        cores = cpu_allowance().threads
        shown = [shown_cell(self._plan, cell, cores) for cell in cells]
        done = experiment.done
        with experiment.running(shown, self._place):
            self._note_skipped()
            experiment.update(accepts_disturbed=self._request.accept_disturbed)
            self._ask_prometheus()
            for number, cell in enumerate(cells, start=1):
                if cell.id not in done and cell.technique not in self._skipped:
                    with experiment.cell(cell.id, shown[number - 1], number):
                        self._one(cell)
            experiment.finish([cell.id for cell in cells if cell.technique not in self._skipped])
        return experiment.record

    def _ask_prometheus(self) -> None:
        """Warn before the first cell if Prometheus does not answer: after an hour it would be too late."""
        if self._request.prometheus:
            from gputax.measure.share.cross_check import silence

            silent = silence(self._request.prometheus)
            if silent is not None:
                self._view.phase(f"WARNING: {silent.text}")

    def _note_skipped(self) -> None:
        self._experiment.update(warnings=self._skipped.warnings(self._experiment.record.warnings))

    def _one(self, cell: ShareCell) -> None:
        started_at = now_text()
        try:
            switched = self._switch(cell)
        except PreflightError as error:
            self._skipped.add(cell.technique, error)
            self._note_skipped()
            return
        try:
            measured = measure_shared_cell(
                self._plan, cell, self._place, switched, self._view, self._request.stall_timeout_s
            )
        except CellError as error:
            error.next_step = _next_step(error)
            raise
        self._keep(measured, started_at)

    def _switch(self, cell: ShareCell) -> Switched:
        """Switch the device to the cell's technique; the time counts toward the first cell after it."""
        if self._switched is not None and self._switched[0] == cell.technique:
            return Switched(0.0, self._switched[1].facts)
        self._switched = None
        technique = TECHNIQUES[cell.technique]
        self._view.phase(f"switching to {technique.name}")
        switched = self._place.switch(technique, self._plan.parts, self._view.phase)
        self._switched = (technique.name, switched)
        self._experiment.store.append_event("switched", technique=technique.name, seconds=round(switched.seconds, 3))
        return switched

    def _keep(self, measured: SharedMeasurement, started_at: str) -> None:
        cell, experiment = measured.cell, self._experiment
        experiment.described(described_sharing(experiment.record, measured))
        document = shared_cell_document(measured, started_at, len(experiment.record.sessions))
        if self._request.prometheus:
            document = self._cross_checked(measured, document)
        environments = {**self._known_environments(), cell.technique: measured.proof.described[0].to_dict()}
        experiment.store.write_json("environment.json", environments)
        experiment.store.write_samples(samples_name(cell), measured.columns)
        cells = (*experiment.record.cells, document)
        experiment.update(cells=cells, **self._rows(cells))
        experiment.ended(cell.id, valid=document.valid)
        self._view.cell_ended(shown_figures(measured, str(experiment.record.device)))

    def _rows(self, cells: Sequence[SharedCell]) -> dict[str, Any]:
        if isinstance(self._plan, AskingPlan):
            accepted = self._request.accept_disturbed
            return {"obtained": obtained_rows(self._plan, cells, accepts_disturbed=accepted)}
        return {"rows": shared_rows(cells)}

    def _known_environments(self) -> dict[str, Any]:
        path = self._experiment.store.path / "environment.json"
        return dict(read_json(path)) if self._experiment.done and path.exists() else {}

    def _cross_checked(self, measured: SharedMeasurement, document: SharedCell) -> SharedCell:
        """Ask Prometheus for the same mean; if it does not answer, warn and keep the cell."""
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


def _next_step(error: GputaxError) -> str:
    """Return what to do about a failed cell; a killed worker leaves at most its last output."""
    if error.next_step and not error.next_step.startswith(LAST_OUTPUT):
        return error.next_step
    fewer = "; if memory is short, use fewer --tenants" if "out of memory" in error.what else ""
    words = f"; {error.next_step}" if error.next_step.removeprefix(LAST_OUTPUT).strip(": ") not in ("", "none") else ""
    return f"the same command retries the failed cells{fewer}{words}"
