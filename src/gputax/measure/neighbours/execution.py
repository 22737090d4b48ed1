"""`gputax share --victim ... --aggressor ...`: who slows a measured tenant by how much, and which walls hold."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gputax.errors import CellError, GputaxError, Interrupted, PreflightError
from gputax.measure.neighbours.cell import measure_beside, parts_of
from gputax.measure.neighbours.isolation import judged_crash, try_isolation
from gputax.measure.neighbours.record import (
    described_by,
    empty_neighbours,
    replaced_isolation,
    shown_cells,
    two_tenants,
)
from gputax.measure.neighbours.rows import neighbour_row
from gputax.measure.neighbours.slots import pairs_of, sample_columns
from gputax.measure.run.execution import refuse_other_conditions
from gputax.measure.view import RunView
from gputax.plan.neighbours import AggressorKind, checked_kinds, checked_victim
from gputax.plan.notices import Notice
from gputax.plan.techniques import TECHNIQUES, SharePlan, Technique
from gputax.results.documents.run import Failure, WarningRecord
from gputax.results.documents.sharing import SharingRecord
from gputax.results.sharing_store import discard_sharing, resumable, write_sharing
from gputax.results.store import ResultDirectory, now_text
from gputax.sharing.place import KnowsAhead, SharedPlace

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
    """The techniques were not named: one that is impossible here is left out aloud instead of refused."""

    @property
    def kinds(self) -> tuple[AggressorKind, ...]:
        """The kinds of neighbours, in the order of their table."""
        return checked_kinds(self.aggressors)

    @property
    def plan_id(self) -> str:
        """A short name for exactly this experiment, so that an interrupted one finds its directory again."""
        data = [dataclasses.asdict(two_tenants(self.plan)), checked_victim(self.victim), self.kinds]
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]

    def cells(self) -> tuple[str, ...]:
        """Return the names of all parts of the experiment, in order."""
        return tuple(cell for name in self.plan.techniques for cell in self.cells_of(name))

    def cells_of(self, technique: str) -> tuple[str, ...]:
        """Return the names of the parts of one technique, in order."""
        return tuple(f"{technique}-{part}" for part in (*self.kinds, ISOLATION))


def measure_neighbours(request: NeighboursRequest, place: SharedPlace, view: RunView) -> SharingRecord:
    """Measure what is not there yet; each neighbour is written when it ends, and the place is put back at the end."""
    try:
        return _Neighbours(request, place, view).execute()
    finally:
        place.close()


class _Neighbours:
    """One experiment into one directory."""

    def __init__(self, request: NeighboursRequest, place: SharedPlace, view: RunView) -> None:
        self._request, self._place, self._view = request, place, view
        cells = request.cells()  # what cannot be right is refused before the directory is made
        self._left_out = self._impossible()
        self._store = ResultDirectory(request.directory)
        try:
            existing = resumable(self._store, request.plan_id, overwrite=request.overwrite)
            record = existing or empty_neighbours(request.plan, request.victim, request.kinds, request.plan_id, cells)
            sessions = (*record.sessions, now_text())
            warnings = tuple(WarningRecord(code="technique-left-out", text=text) for text in self._left_out.values())
            changes = {
                "failures": (),
                "sessions": sessions,
                "command": request.command or record.command,
                "warnings": tuple(dict.fromkeys((*record.warnings, *warnings))),
            }
            self.record = record.model_copy(update=changes)
            write_sharing(self._store, self.record)
        except BaseException:
            self._store.close()
            raise

    @property
    def _techniques(self) -> list[str]:
        return [name for name in self._request.plan.techniques if name not in self._left_out]

    def _impossible(self) -> dict[str, str]:
        """Return what the place knows to be impossible; refuse it where it was named, or where nothing else is left."""
        found: dict[str, str] = {}
        if not isinstance(self._place, KnowsAhead):
            return found
        plan = self._request.plan
        for name in plan.techniques:
            error = self._place.impossible(TECHNIQUES[name], plan.setup)
            if error is None:
                continue
            if not self._request.optional or len(found) + 1 == len(plan.techniques):
                raise error
            found[name] = f"{name} was left out: {error.what}. Next: {error.next_step}"
            self._view.phase(found[name])
        return found

    def execute(self) -> SharingRecord:
        """Go through the techniques, and within each through the neighbours."""
        settled = self._settled()
        self._store.append_event("neighbours started", cells=len(self.record.cells_planned), resumed=len(settled))
        shown = shown_cells(self._request.plan, self._request.victim, len(self._request.kinds))
        self._view.run_started(str(self._store.path), shown, len(settled))
        try:
            for name in self._techniques:
                if set(self._request.cells_of(name)) - settled:
                    self._technique(TECHNIQUES[name], settled)
            asked = {cell for name in self._techniques for cell in self._request.cells_of(name)}
            self._update(complete=asked <= self._settled())
            self._store.append_event("neighbours ended")
        except KeyboardInterrupt as error:
            self._store.append_event("interrupted")
            raise self._interrupted() from error
        finally:
            self._leave()
        return self.record

    def _interrupted(self) -> Interrupted:
        kept = len(self._settled())
        if not kept and not self.record.failures:
            return Interrupted(
                "interrupted before the first part ended; nothing was kept", next_step="the same command begins anew"
            )
        return Interrupted(
            f"interrupted; {kept} of {len(self.record.cells_planned)} parts are kept",
            where=str(self._store.path),
            next_step="the same command resumes",
        )

    def _technique(self, technique: Technique, settled: set[str]) -> None:
        self._place.switch(technique, parts_of(self._request.plan), self._view.phase)
        parts: dict[str, Callable[[], None]] = {
            f"{technique.name}-{kind}": partial(self._beside, technique, kind) for kind in self._request.kinds
        }
        parts[f"{technique.name}-{ISOLATION}"] = partial(self._isolation, technique)
        for cell, part in parts.items():
            if cell not in settled:
                self._tried(cell, part)

    def _tried(self, cell: str, part: Callable[[], None]) -> None:
        """Do one part; its failure is kept and the next part goes on."""
        number = self.record.cells_planned.index(cell)
        shown = shown_cells(self._request.plan, self._request.victim, len(self._request.kinds))
        self._view.cell_started(shown[number], number + 1)
        self._store.append_event("cell started", cell=cell)
        try:
            part()
        except CellError as error:
            self._fail(cell, error)
        else:
            self._store.append_event("cell ended", cell=cell)

    def _beside(self, technique: Technique, kind: AggressorKind) -> None:
        plan, cell = self._request.plan, f"{technique.name}-{kind}"
        result = measure_beside(self._place, technique, plan, kind, self._view)
        self._store.write_samples(f"samples/neighbour-{cell}.parquet", sample_columns(result.slots))
        self._store.write_json("environment.json", result.described.to_dict())
        record = described_by(self.record, result.facts, result.described, cell, result)
        if self.record.neighbours:
            refuse_other_conditions(self.record.fingerprint, record.fingerprint, str(self._store.path))
        changes: dict[str, object] = {}
        if kind == "crash":
            changes["isolation"] = replaced_isolation(record.isolation, judged_crash(technique, result.crash))
        if result.crash is None or result.crash.contained:
            victim = f"{plan.setup.workload}, {self._request.victim}"
            pairs, notices = pairs_of(result.slots), _once(result.notices)
            row = neighbour_row(technique.name, victim, kind, pairs, notices, reasons=result.reasons())
            changes["neighbours"] = (*record.neighbours, row)
            self._view.phase(_line(cell, row.slowdown_percent.value, valid=row.valid))
        self.record = record
        self._update(**changes)
        if result.crash is not None and not result.crash.contained:
            raise CellError(judged_crash(technique, result.crash).text, where=cell, next_step="see the isolation list")

    def _isolation(self, technique: Technique) -> None:
        self._view.phase("isolation")
        try:
            rows = try_isolation(self._place, technique, self._request.plan, self.record.device or "cpu")
        except PreflightError as error:  # what the walls cannot be tried with does not spoil what was measured
            raise CellError(error.what, where=error.where, next_step=error.next_step) from error
        if "crash" not in self._request.kinds:
            rows.append(judged_crash(technique, None))
        isolation = self.record.isolation
        for row in rows:
            isolation = replaced_isolation(isolation, row)
        self._update(isolation=isolation)

    def _settled(self) -> set[str]:
        """Return the parts that need not be measured again: with a row, or with a verdict on the crash."""
        done = {f"{row.technique}-{row.aggressor}" for row in self.record.neighbours}
        done |= {
            f"{row.technique}-crash" for row in self.record.isolation if "crash" in row.check and row.passed is False
        }
        return done | {f"{row.technique}-{ISOLATION}" for row in self.record.isolation if "crash" not in row.check}

    def _fail(self, cell: str, error: GputaxError) -> None:
        failure = Failure(
            cell=cell, kind=type(error).__name__, what=error.what, where=error.where, next=error.next_step
        )
        self._update(failures=(*self.record.failures, failure))
        self._store.append_event("cell failed", cell=cell, what=error.what)
        self._view.cell_failed(failure)

    def _leave(self) -> None:
        """Put the place back, and keep what it wants kept."""
        try:
            self._place.close()
            if self._settled() or self.record.failures:
                for name, text in self._place.files().items():
                    self._store.write_text(name, text)
        finally:
            if not self._settled() and not self.record.failures:
                discard_sharing(self._store)
            self._store.close()

    def _update(self, **changes: object) -> None:
        self.record = self.record.model_copy(update=changes)
        write_sharing(self._store, self.record)


def _once(notices: list[Notice]) -> list[Notice]:
    """Return one notice of each kind, the largest: the slots of a cell repeat each other."""
    by_code: dict[str, Notice] = {}
    for notice in notices:
        known = by_code.get(notice.code)
        if known is None or abs(notice.value or 0.0) > abs(known.value or 0.0):
            by_code[notice.code] = notice
    return list(by_code.values())


def _line(cell: str, percent: float | None, *, valid: bool) -> str:
    return f"{cell}: {percent:+.3g} %" if valid and percent is not None else f"{cell}: INVALID"
