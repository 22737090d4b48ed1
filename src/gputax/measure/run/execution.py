"""Run the cells of a plan one after the other; each is written when it ends, and an interrupt loses nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gputax.errors import CellError, GputaxError, Interrupted, PreflightError, UsageError
from gputax.measure.documents import benchmark_document, described_record, empty_record, failure_document
from gputax.measure.run.cell import Measured, measure_cell
from gputax.measure.session import WorkerSession
from gputax.measure.view import RunView
from gputax.places import Places, environment_named
from gputax.plan.cells import Cell, plan_id
from gputax.plan.driver import driver_choice, share_a_worker
from gputax.plan.options import EnvironmentOptions
from gputax.results.documents.run import RunRecord
from gputax.results.micro_text import FILE_NAME as MICRO_TEXT
from gputax.results.micro_text import micro_text
from gputax.results.store import ResultDirectory, now_text


class Run:
    """One run into one directory."""

    def __init__(
        self,
        cells: tuple[Cell, ...],
        directory: Path,
        view: RunView,
        *,
        overwrite: bool = False,
        stall_timeout_s: float = 0.0,
        options: EnvironmentOptions | None = None,
    ) -> None:
        if len({cell.id for cell in cells}) != len(cells):
            raise UsageError("the plan names the same cell twice", next_step="list each batch and scenario once")
        self._cells = cells
        self._view = view
        self._stall_timeout_s = stall_timeout_s
        self._session: WorkerSession | None = None
        self._places = Places(options, view.phase)
        self._store = ResultDirectory(directory)
        try:
            self.record = self._starting_record(overwrite)
            self._store.write_record(self.record)
        except BaseException:
            self._store.close()
            raise

    def execute(self) -> RunRecord:
        """Measure every cell that is not there yet; returns the record as it is on disk."""
        done = {benchmark.cell for benchmark in self.record.benchmarks}
        self._view.run_started(str(self._store.path), self._cells, len(done))
        self._store.append_event("run started", cells=len(self._cells), resumed=len(done))
        try:
            for number, cell in enumerate(self._cells, start=1):
                if cell.id not in done:
                    self._view.cell_started(cell, number)
                    self._one(cell)
            self._update(complete=not self.record.failures)  # so that the same command tries the failed cells again
            self._store.append_event("run ended")
        except KeyboardInterrupt as error:
            self._store.append_event("interrupted")
            raise Interrupted(
                f"interrupted; {len(self.record.benchmarks)} of {len(self._cells)} cells are kept",
                where=str(self._store.path),
                next_step="the same command resumes",
            ) from error
        finally:
            try:
                if self._session is not None:
                    self._session.end()
                self._leave_places()
            finally:
                if not self.record.benchmarks and not self.record.failures:
                    self._store.discard()
                self._store.close()
        return self.record

    def _leave_places(self) -> None:
        """Remove what was made for the workers, and keep what the result directory shall tell of it."""
        self._places.close()
        if self.record.benchmarks or self.record.failures:
            for name, text in self._places.files().items():
                self._store.write_text(name, text)
        if self._places.api_calls():
            self._store.append_event("places left", api_calls=self._places.api_calls())

    def _starting_record(self, overwrite: bool) -> RunRecord:
        plan = plan_id(self._cells)
        existing = self._store.existing()
        if existing is not None and not overwrite:
            if existing.plan_id != plan:
                raise UsageError(
                    "this directory holds another run",
                    where=str(self._store.path),
                    next_step="choose another --out, or add --overwrite",
                )
            if existing.complete:
                raise UsageError(
                    f"this run is complete already ({existing.timestamp})",
                    where=str(self._store.path),
                    next_step="choose another --out, or add --overwrite to measure again",
                )
            return existing.model_copy(update={"failures": (), "sessions": (*existing.sessions, now_text())})
        return empty_record(self._cells, plan, now_text())

    def _one(self, cell: Cell) -> None:
        started_at = now_text()
        try:
            session = self._session_for(cell)
            measured = measure_cell(session, cell, self._view)
            measured = measured.proven(session.evidence())
        except (UsageError, PreflightError):
            raise  # the whole run cannot be right; nothing was measured in vain
        except CellError as error:
            self._fail(cell, error)
            return
        self._keep(measured, session, started_at)

    def _session_for(self, cell: Cell) -> WorkerSession:
        session = self._session
        if session is not None and session.usable and session.setup == cell.setup:
            return session
        if session is not None and session.usable and share_a_worker(session.setup, cell.setup):
            session.prepare(cell.setup)
        else:
            if session is not None:
                session.close()
            self._session = None  # what the next line may raise must not meet the old one again
            environment = environment_named(cell.environment, driver_choice(cell.setup), self._places)
            session = self._session = WorkerSession(environment, cell.setup, self._view, self._stall_timeout_s)
        described = described_record(self.record, session.described, session.facts, session.evidence())
        if self.record.benchmarks:
            refuse_other_conditions(self.record.fingerprint, described.fingerprint, str(self._store.path))
        self._store.write_json("environment.json", session.described.to_dict())
        self.record = described
        return session

    def _keep(self, measured: Measured, session: WorkerSession, started_at: str) -> None:
        cell = measured.cell
        benchmark = benchmark_document(measured, session.facts, started_at, len(self.record.sessions))
        for name, text in measured.observation.logs.items():
            self._store.write_text(f"cells/{cell.id}/{name}", text)
        self._store.write_text(benchmark.telemetry_file, json.dumps(measured.observation.telemetry) + "\n")
        self._store.write_samples(benchmark.samples_file, measured.observation.columns)
        self._update(benchmarks=(*self.record.benchmarks, benchmark), evidence=self._evidence(measured))
        text = micro_text(self.record)
        if text:
            self._store.write_text(MICRO_TEXT, text)
        self._store.append_event("cell ended", cell=cell.id, valid=benchmark.valid)
        self._view.cell_ended(benchmark)

    def _evidence(self, measured: Measured) -> dict[str, Any]:
        """Return the run's evidence: that of its last cell, but one cell without it leaves the run without."""
        cells = [each.evidence for each in self.record.benchmarks if each.evidence]
        broken = next((each for each in cells if each.get("active") is not True), None)
        return dict(broken or measured.evidence.to_dict())

    def _fail(self, cell: Cell, error: GputaxError) -> None:
        # An engine that threw leaves its worker in an unknown state: the next cell gets a new one.
        if self._session is not None:
            self._session.end()
            self._session = None
        failure = failure_document(cell, error)
        self._update(failures=(*self.record.failures, failure))
        self._store.append_event("cell failed", cell=cell.id, what=error.what)
        self._view.cell_failed(failure)

    def _update(self, **changes: object) -> None:
        self.record = self.record.model_copy(update=changes)
        self._store.write_record(self.record)


def refuse_other_conditions(before: dict[str, Any], now: dict[str, Any], where: str) -> None:
    """Refuse to add cells to a record whose earlier cells were measured under other conditions."""
    changed = []
    for part in ("host", "cpu_allowance", "gpus", "packages"):
        if before.get(part) != now.get(part):
            changed += _changes(part, before.get(part), now.get(part))
    for workload in before.get("setups", {}):
        changed += _changes(workload, before["setups"][workload], now["setups"].get(workload))
    if changed:
        raise PreflightError(
            "this machine or its software is not what the earlier cells were measured on: " + "; ".join(changed[:4]),
            where=where,
            next_step="restore it, or measure everything anew with --overwrite or another --out",
        )


def _changes(name: str, before: Any, now: Any) -> list[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        return [line for key in before for line in _changes(f"{name}.{key}", before[key], now.get(key))]
    return [] if before == now else [f"{name} was {before!r}, is {now!r}"]
