"""`gputax share --victim ... --aggressor ...`: how much each neighbour slows a tenant, and which isolation holds."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gputax.errors import CellError, PreflightError
from gputax.measure.experiment import Experiment, SkippedTechniques
from gputax.measure.neighbours.cell import measure_beside, parts_of
from gputax.measure.neighbours.isolation import judged_crash, try_isolation
from gputax.measure.neighbours.record import (
    described_by,
    empty_neighbours,
    neighbour_row,
    replaced_isolation,
    shown_cells,
    two_tenants,
)
from gputax.measure.neighbours.slots import pairs_of, sample_columns
from gputax.measure.view import RunView
from gputax.plan.notices import Notice
from gputax.plan.techniques import TECHNIQUES, AggressorKind, SharePlan, Technique, checked_kinds, checked_victim
from gputax.results.documents.sharing import SharingRecord
from gputax.results.reading import SHARING
from gputax.sharing.place import SharedPlace

ISOLATION = "isolation"


@dataclass(frozen=True)
class NeighboursRequest:
    """One experiment: a victim beside each kind of neighbour, under each technique."""

    plan: SharePlan
    """Its setup is the victim's, its repeats are restarts of both workers, its window is the length of a slot."""
    victim: str
    """The victim's scenario."""
    aggressors: tuple[str, ...]
    directory: Path
    command: str = ""
    overwrite: bool = False
    optional: bool = False
    """The techniques were not named: one that is impossible here is skipped with a warning instead of refused."""
    accept_disturbed: bool = False

    @property
    def kinds(self) -> tuple[AggressorKind, ...]:
        """The kinds of neighbours, in the order of their table."""
        return checked_kinds(self.aggressors)

    @property
    def plan_id(self) -> str:
        """A short name for exactly this experiment, so that an interrupted one can be resumed."""
        data = [dataclasses.asdict(two_tenants(self.plan)), checked_victim(self.victim), self.kinds]
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]

    def cells(self) -> tuple[str, ...]:
        """Return the names of all parts of the experiment, in order."""
        return tuple(cell for name in self.plan.techniques for cell in self.cells_of(name))

    def cells_of(self, technique: str) -> tuple[str, ...]:
        """Return the names of the parts of one technique, in order."""
        return tuple(f"{technique}-{part}" for part in (*self.kinds, ISOLATION))


def measure_neighbours(request: NeighboursRequest, place: SharedPlace, view: RunView) -> SharingRecord:
    """Measure what is missing; each neighbour is saved when it ends, and the place is restored at the end."""
    try:
        return _Neighbours(request, place, view).execute()
    finally:
        place.close()


class _Neighbours:
    """One experiment into one directory."""

    def __init__(self, request: NeighboursRequest, place: SharedPlace, view: RunView) -> None:
        self._request, self._place, self._view = request, place, view
        self._cells = request.cells()  # invalid requests are refused before the directory is created
        self._shown = shown_cells(request.plan, request.victim, len(request.kinds))
        self._skipped = SkippedTechniques(request.plan, view, named=not request.optional)
        self._skipped.ask(place)
        self._experiment = Experiment(
            SHARING,
            request.directory,
            view,
            diary_name="neighbours",
            plan_id=request.plan_id,
            begin=lambda at: empty_neighbours(
                request.plan, request.victim, request.kinds, request.plan_id, self._cells, at
            ),
            done=settled_parts,
            overwrite=request.overwrite,
        )

    def execute(self) -> SharingRecord:
        """Go through the techniques, and within each through the neighbours."""
        experiment, request = self._experiment, self._request
        done = experiment.done
        with experiment.running(self._shown, self._place):
            experiment.update(
                command=request.command or experiment.record.command,
                accepts_disturbed=request.accept_disturbed,
                warnings=self._skipped.warnings(experiment.record.warnings),
            )
            for name in self._skipped.remaining:
                if set(request.cells_of(name)) - done:
                    self._technique(TECHNIQUES[name], done)
            experiment.finish([cell for name in self._skipped.remaining for cell in request.cells_of(name)])
        return experiment.record

    def _technique(self, technique: Technique, done: set[str]) -> None:
        self._place.switch(technique, parts_of(self._request.plan), self._view.phase)
        parts: dict[str, Callable[[], bool]] = {
            f"{technique.name}-{kind}": partial(self._beside, technique, kind) for kind in self._request.kinds
        }
        parts[f"{technique.name}-{ISOLATION}"] = partial(self._isolation, technique)
        for cell, part in parts.items():
            if cell not in done:
                number = self._cells.index(cell)
                self._experiment.store.append_event("cell started", cell=cell)
                with self._experiment.cell(cell, self._shown[number], number + 1):
                    self._experiment.ended(cell, valid=part())

    def _beside(self, technique: Technique, kind: AggressorKind) -> bool:
        """Measure the victim beside one kind of neighbour; returns whether the result is valid."""
        experiment, plan, cell = self._experiment, self._request.plan, f"{technique.name}-{kind}"
        result = measure_beside(self._place, technique, plan, kind, self._view)
        experiment.described(described_by(experiment.record, result.facts, result.described, cell, result))
        experiment.store.write_samples(f"samples/neighbour-{cell}.parquet", sample_columns(result.slots))
        experiment.store.write_json("environment.json", result.described.to_dict())
        isolation, neighbours = experiment.record.isolation, experiment.record.neighbours
        valid = False
        if kind == "crash":
            isolation = replaced_isolation(isolation, judged_crash(technique, result.crash))
        if result.crash is None or result.crash.contained:
            victim = f"{plan.setup.workload}, {self._request.victim}"
            pairs, notices = pairs_of(result.slots), _once(result.notices)
            row = neighbour_row(technique.name, victim, kind, pairs, notices, reasons=result.reasons())
            row = row.model_copy(update={"disturbed": result.disturbed})
            neighbours, valid = (*neighbours, row), row.valid
            self._view.phase(_line(cell, row.slowdown_percent.value, valid=row.valid))
        experiment.update(isolation=isolation, neighbours=neighbours)
        if result.crash is not None and not result.crash.contained:
            raise CellError(judged_crash(technique, result.crash).text, where=cell, next_step="see the isolation list")
        return valid

    def _isolation(self, technique: Technique) -> bool:
        """Test the isolation between two tenants; every outcome is a result."""
        self._view.phase("isolation")
        record = self._experiment.record
        try:
            rows = try_isolation(self._place, technique, self._request.plan, record.device or "cpu")
        except PreflightError as error:  # measured cells stay valid if isolation cannot be tested
            raise CellError(error.what, where=error.where, next_step=error.next_step) from error
        if "crash" not in self._request.kinds:
            rows.append(judged_crash(technique, None))
        isolation = record.isolation
        for row in rows:
            isolation = replaced_isolation(isolation, row)
        self._experiment.update(isolation=isolation)
        return True


def settled_parts(record: SharingRecord) -> set[str]:
    """Return the parts that need not be measured again: with a row, or with a verdict on the crash."""
    done = {f"{row.technique}-{row.aggressor}" for row in record.neighbours}
    done |= {f"{row.technique}-crash" for row in record.isolation if "crash" in row.check and row.passed is False}
    return done | {f"{row.technique}-{ISOLATION}" for row in record.isolation if "crash" not in row.check}


def _once(notices: list[Notice]) -> list[Notice]:
    """Return the largest notice of each kind: the slots of a cell repeat each other."""
    by_code: dict[str, Notice] = {}
    for notice in notices:
        known = by_code.get(notice.code)
        if known is None or abs(notice.value or 0.0) > abs(known.value or 0.0):
            by_code[notice.code] = notice
    return list(by_code.values())


def _line(cell: str, percent: float | None, *, valid: bool) -> str:
    return f"{cell}: {percent:+.3g} %" if valid and percent is not None else f"{cell}: INVALID"
