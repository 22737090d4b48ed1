"""Run the cells of a plan one after the other; each is saved when it ends, so an interrupt loses nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gputax.errors import CellError, UsageError
from gputax.measure.experiment import Experiment
from gputax.measure.run.cell import Measured, measure_cell
from gputax.measure.run.documents import benchmark_document, described_record, empty_record
from gputax.measure.session import WorkerSession
from gputax.measure.view import CellFigures, RunView
from gputax.places import Places, environment_named
from gputax.plan.cells import Cell, plan_id
from gputax.plan.driver import driver_choice, share_a_worker
from gputax.plan.options import EnvironmentOptions
from gputax.results.documents.run import RunRecord
from gputax.results.kinds import RUN
from gputax.results.micro_text import FILE_NAME as MICRO_TEXT
from gputax.results.micro_text import micro_text
from gputax.results.store import now_text


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
        plan = plan_id(cells)
        self._experiment = Experiment(
            RUN,
            directory,
            view,
            diary_name="run",
            plan_id=plan,
            begin=lambda at: empty_record(cells, plan, at),
            done=lambda record: {benchmark.cell for benchmark in record.benchmarks},
            overwrite=overwrite,
        )

    def execute(self) -> RunRecord:
        """Measure every missing cell; returns the record as it is on disk."""
        experiment = self._experiment
        done = experiment.done
        with experiment.running(self._cells, self._places):
            try:
                for number, cell in enumerate(self._cells, start=1):
                    if cell.id not in done:
                        with experiment.cell(cell.id, cell, number):
                            self._one(cell)
                experiment.finish([cell.id for cell in self._cells])
            finally:
                self._end_session()
                self._places.close()
                if self._places.api_calls():
                    experiment.store.append_event("places left", api_calls=self._places.api_calls())
        return experiment.record

    def _one(self, cell: Cell) -> None:
        started_at = now_text()
        try:
            session = self._session_for(cell)
            measured = measure_cell(session, cell, self._view).proven(session.evidence())
        except CellError:
            # After an exception in the engine the worker is in an unknown state: the next cell gets a new one.
            self._end_session()
            raise
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
            self._session = None  # if the next line raises, the old one must not be used again
            environment = environment_named(cell.environment, driver_choice(cell.setup), self._places)
            session = self._session = WorkerSession(environment, cell.setup, self._view, self._stall_timeout_s)
        experiment = self._experiment
        experiment.described(described_record(experiment.record, session.described, session.facts, session.evidence()))
        experiment.store.write_json("environment.json", session.described.to_dict())
        return session

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.end()
            self._session = None

    def _keep(self, measured: Measured, session: WorkerSession, started_at: str) -> None:
        cell, experiment, store = measured.cell, self._experiment, self._experiment.store
        benchmark = benchmark_document(measured, session.facts, started_at, len(experiment.record.sessions))
        for name, text in measured.observation.logs.items():
            store.write_text(f"cells/{cell.id}/{name}", text)
        store.write_text(benchmark.telemetry_file, json.dumps(measured.observation.telemetry) + "\n")
        store.write_samples(benchmark.samples_file, measured.observation.columns)
        evidence = _run_evidence(experiment.record, measured)
        experiment.update(benchmarks=(*experiment.record.benchmarks, benchmark), evidence=evidence)
        text = micro_text(experiment.record)
        if text:
            store.write_text(MICRO_TEXT, text)
        experiment.ended(cell.id, valid=benchmark.valid)
        self._view.cell_ended(
            CellFigures(
                cell=cell.id,
                device=benchmark.device,
                throughput_per_s=benchmark.throughput_samples_per_sec,
                p90_ms=benchmark.latency_p90_ms,
                p99_ms=benchmark.latency_p99_ms,
                valid=benchmark.valid,
            )
        )


def _run_evidence(record: RunRecord, measured: Measured) -> dict[str, Any]:
    """Return the run's evidence: that of its last cell, or none if any cell has none."""
    cells = [each.evidence for each in record.benchmarks if each.evidence]
    broken = next((each for each in cells if each.get("active") is not True), None)
    return dict(broken or measured.evidence.to_dict())
