"""The life cycle of an experiment: open or resume, skip what cannot be, save cell by cell, survive interrupts."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Generic, Protocol

from gputax.errors import CellError, GputaxError, Interrupted, PreflightError, UsageError
from gputax.measure.view import RunView
from gputax.plan.cells import Cell
from gputax.plan.comparability import blocking_differences, conditions_of_fingerprint
from gputax.plan.notices import Notice
from gputax.plan.techniques import TECHNIQUES, SharePlan
from gputax.results.documents.base import Failure, WarningRecord, with_notices
from gputax.results.reading import RUN, SHARING, AnyDocument, DocumentKind, Resumable
from gputax.results.store import ResultDirectory, now_text
from gputax.sharing.place import KnowsAhead, SharedPlace

# Enough to recognise a different machine; everything else follows from these.
MOST_CHANGES_SHOWN = 4


class Place(Protocol):
    """Where the workers of an experiment run: it is restored at the end, and may have files to keep."""

    def close(self) -> None:
        """Remove everything that was created; may be called twice."""
        ...

    def files(self) -> Mapping[str, str]:
        """Return texts for the result directory, by their names there."""
        ...


@contextmanager
def left_in_order(
    store: ResultDirectory[AnyDocument],
    place: Place,
    kept: Callable[[], bool],
    interrupted: Callable[[], Interrupted],
) -> Iterator[None]:
    """Restore the place however the measurement ends, and remove the directory if it has no result."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise interrupted() from error
    finally:
        try:
            place.close()
            if kept():
                for name, text in place.files().items():
                    store.write_text(name, text)
        finally:
            if not kept():
                store.discard()
            store.close()


def open_new(kind: DocumentKind[AnyDocument], directory: Path) -> ResultDirectory[AnyDocument]:
    """Open a directory for something that cannot be resumed; refuse one that contains results."""
    store = ResultDirectory(directory, kind)
    try:
        _refuse_foreign(store)
        if store.holds(kind):
            raise UsageError(
                f"this directory already contains a {kind.experiment}",
                where=str(directory),
                next_step="choose another --out",
            )
    except BaseException:
        store.close()
        raise
    return store


class Experiment(Generic[Resumable]):
    """One experiment in one directory, whose record grows cell by cell."""

    def __init__(
        self,
        kind: DocumentKind[Resumable],
        directory: Path,
        view: RunView,
        *,
        diary_name: str,
        plan_id: str,
        begin: Callable[[str], Resumable],
        done: Callable[[Resumable], Collection[str]],
        wanted: Collection[str] = (),
        overwrite: bool = False,
    ) -> None:
        """Open the directory; `begin` returns an empty record, `done` the cells of a record.

        A complete record is continued if not all `wanted` cells are in it.
        """
        self.view: RunView = view
        self._diary_name: str = diary_name
        self._done: Callable[[Resumable], Collection[str]] = done
        self.store: ResultDirectory[Resumable] = ResultDirectory(directory, kind)
        try:
            _refuse_foreign(self.store)
            existing = None if overwrite else self.store.existing()
            if existing is not None:
                _refuse_other_plan(self.store, existing, plan_id, more=bool(set(wanted) - set(done(existing))))
            started_at = now_text()
            begun: Resumable = begin(started_at) if existing is None else existing
            record = begun.model_copy(update={"failures": (), "sessions": (*begun.sessions, started_at)})
            self.store.write_document(record)
        except BaseException:
            self.store.close()
            raise
        self.record: Resumable = record

    @property
    def done(self) -> set[str]:
        """The cells that need not be measured again."""
        return set(self._done(self.record))

    @contextmanager
    def running(self, cells: Sequence[Cell], place: Place) -> Iterator[None]:
        """Measure these cells inside; an interrupt keeps all finished cells, and the same command resumes."""

        def kept() -> bool:
            return bool(self.done or self.record.failures)

        with left_in_order(self.store, place, kept, lambda: self._interrupted(len(cells))):
            self.view.run_started(str(self.store.path), tuple(cells), len(self.done))
            self.store.append_event(f"{self._diary_name} started", cells=len(cells), resumed=len(self.done))
            yield
            self.store.append_event(f"{self._diary_name} ended")

    @contextmanager
    def cell(self, name: str, shown: Cell, number: int) -> Iterator[None]:
        """Measure one cell inside; a failure is recorded and the next cell continues."""
        self.view.cell_started(shown, number)
        try:
            yield
        except CellError as error:
            failure = failure_of(name, error)
            self.update(failures=(*self.record.failures, failure))
            self.store.append_event("cell failed", cell=name, what=error.what)
            self.view.cell_failed(failure)

    def ended(self, name: str, *, valid: bool) -> None:
        """Log that a cell was saved."""
        self.store.append_event("cell ended", cell=name, valid=valid)

    def described(self, record: Resumable) -> None:
        """Update the record from a worker's description; refuse a machine other than that of the earlier cells."""
        before, now = (conditions_of_fingerprint(each.fingerprint) for each in (self.record, record))
        changed = blocking_differences(before, now, "resume") if self.done else ()
        if changed:
            raise PreflightError(
                "this machine or its software differs from that of the earlier cells: "
                + "; ".join(changed[:MOST_CHANGES_SHOWN]),
                where=str(self.store.path),
                next_step="restore it, or measure everything again with --overwrite or another --out",
            )
        self.record = record

    def update(self, **changes: Any) -> None:
        """Change the record, in memory and on disk."""
        self.record = self.record.model_copy(update=changes)
        self.store.write_document(self.record)

    def finish(self, wanted: Collection[str]) -> None:
        """Mark it complete if all planned cells are done; otherwise the same command retries the missing ones."""
        self.update(complete=set(wanted) <= self.done)

    def _interrupted(self, planned: int) -> Interrupted:
        self.store.append_event("interrupted")
        if not self.done and not self.record.failures:
            return Interrupted(
                "interrupted before the first cell finished; nothing was kept", next_step="run the same command again"
            )
        return Interrupted(
            f"interrupted; {len(self.done)} of {planned} cells are kept",
            where=str(self.store.path),
            next_step="the same command resumes",
        )


def failure_of(cell: str, error: GputaxError) -> Failure:
    """Return the record of a cell that failed."""
    return Failure(cell=cell, kind=type(error).__name__, what=error.what, where=error.where, next=error.next_step)


def _refuse_foreign(store: ResultDirectory[Any]) -> None:
    """Refuse the directory of another experiment, even to overwrite it: its files would be mixed with ours."""
    kinds: tuple[DocumentKind[Any], ...] = (RUN, SHARING)
    for kind in kinds:
        if kind is not store.kind and store.holds(kind):
            raise UsageError(
                f"this directory contains a {kind.experiment}, not a {store.kind.experiment}",
                where=str(store.path),
                next_step="choose another --out",
            )


def _refuse_other_plan(store: ResultDirectory[Resumable], existing: Resumable, plan_id: str, *, more: bool) -> None:
    if existing.plan_id != plan_id:
        raise UsageError(
            f"this directory contains another {store.kind.experiment}",
            where=str(store.path),
            next_step="choose another --out, or add --overwrite",
        )
    if existing.complete and not more:
        raise UsageError(
            f"this {store.kind.experiment} is already complete ({existing.timestamp})",
            where=str(store.path),
            next_step="choose another --out, or add --overwrite to measure again",
        )


STOPPING = (signal.SIGINT, signal.SIGTERM)
Halted = Callable[[], bool]


@contextmanager
def orderly_stop(after: str) -> Iterator[Halted]:
    """Yield a function that returns whether to stop; `after` names the step that is finished first."""
    requested = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal requested
        if requested:
            raise KeyboardInterrupt
        requested = True
        # Not with print: the signal may arrive during one.
        name = signal.Signals(number).name
        os.write(2, f"\ngputax: {name}: stopping after {after}; press again to stop now and keep nothing\n".encode())

    # A shell's background job ignores SIGINT; keep it ignored.
    handled = [number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in handled}
    try:
        yield lambda: requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


TECHNIQUE_SKIPPED = "technique-left-out"


class SkippedTechniques:
    """The skipped techniques and the reasons; a technique that was named is refused instead."""

    def __init__(self, plan: SharePlan, view: RunView, *, named: bool) -> None:
        self._plan, self._view, self._named = plan, view, named
        self._why: dict[str, PreflightError] = {}

    def __contains__(self, technique: str) -> bool:
        return technique in self._why

    @property
    def remaining(self) -> tuple[str, ...]:
        """The techniques to measure."""
        return tuple(name for name in self._plan.techniques if name not in self._why)

    def add(self, technique: str, error: PreflightError) -> None:
        """Skip it, or raise if it was named or no other technique remains."""
        if self._named or self.remaining == (technique,):
            raise error
        self._why[technique] = error
        self._view.phase(self._text(technique))

    def ask(self, place: SharedPlace) -> None:
        """Check with the place up front which techniques are impossible."""
        if isinstance(place, KnowsAhead):
            for name in self._plan.techniques:
                error = place.impossible(TECHNIQUES[name], self._plan.setup)
                if error is not None:
                    self.add(name, error)

    def warnings(self, before: tuple[WarningRecord, ...]) -> tuple[WarningRecord, ...]:
        """Return a record's warnings, with those of an earlier start replaced by this one's."""
        kept = tuple(each for each in before if each.code != TECHNIQUE_SKIPPED)
        return with_notices(kept, [Notice(TECHNIQUE_SKIPPED, self._text(name)) for name in self._why])

    def _text(self, technique: str) -> str:
        error = self._why[technique]
        return f"{technique} was skipped: {error.what}. Next: {error.next_step}"
