"""Run the cells of a plan one after the other; each is saved when it ends, so an interrupt loses nothing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from gputax.errors import CellError, UsageError
from gputax.measure.experiment import Experiment
from gputax.measure.run.cell import Measured, measure_cell
from gputax.measure.run.documents import (
    MICRO_TEXT,
    benchmark_document,
    described_record,
    empty_record,
    micro_text,
    plan_of,
)
from gputax.measure.session import WorkerSession
from gputax.measure.view import CellFigures, RunView
from gputax.places import Places, environment_named
from gputax.plan.cells import Cell, Repetition, plan_id, repetitions
from gputax.plan.driver import driver_choice, share_a_worker
from gputax.plan.options import EnvironmentOptions
from gputax.results.columns import sample_tables
from gputax.results.documents.run import Benchmark, RunRecord
from gputax.results.reading import RUN
from gputax.results.store import now_text


class Run:
    """One run into one directory."""

    def __init__(
        self,
        cells: tuple[Cell, ...],
        directory: Path,
        view: RunView,
        *,
        repeats: int = 1,
        overwrite: bool = False,
        stall_timeout_s: float = 0.0,
        options: EnvironmentOptions | None = None,
    ) -> None:
        if len({cell.id for cell in cells}) != len(cells):
            raise UsageError("the plan names the same cell twice", next_step="list each batch and scenario once")
        self._plan = cells
        self._cells = repetitions(cells, repeats)
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
            done=lambda record: {benchmark.name for benchmark in record.benchmarks},
            wanted=[each.name for each in self._cells],
            overwrite=overwrite,
        )

    def execute(self) -> RunRecord:
        """Measure every missing cell; returns the record as it is on disk."""
        experiment = self._experiment
        done = experiment.done
        names = tuple(each.name for each in self._cells)
        with experiment.running([each.cell for each in self._cells], self._places):
            try:
                # A run that is continued with fewer repeats keeps those that it has.
                planned = tuple(dict.fromkeys((*experiment.record.cells_planned, *names)))
                experiment.update(cells_planned=planned, plan=plan_of(self._plan))
                for number, each in enumerate(self._cells, start=1):
                    if each.name not in done:
                        with experiment.cell(each.name, each.cell, number):
                            self._one(each)
                experiment.finish(names)
            finally:
                self._end_session()
                self._places.close()
                if self._places.api_calls():
                    experiment.store.append_event("places left", api_calls=self._places.api_calls())
        return experiment.record

    def _one(self, repetition: Repetition) -> None:
        started_at = now_text()
        first = next((each for each in self._experiment.record.benchmarks if each.cell == repetition.cell.id), None)
        cell = repetition.cell if first is None else _at_the_rate_of(first, repetition.cell)
        repeats = self._cells[-1].repeat
        if repeats > 1:
            self._view.phase(f"repeat {repetition.repeat} of {repeats}, with a new worker")
            # Two processes of the same program differ, so every repeat needs its own.
            self._end_session()
        try:
            session = self._session_for(cell)
            measured = measure_cell(session, cell, self._view).proven(session.evidence())
        except CellError:
            # After an exception in the engine the worker is in an unknown state: the next cell gets a new one.
            self._end_session()
            raise
        number = len(self._experiment.record.sessions)
        benchmark = benchmark_document(measured, session.facts, started_at, number, repetition.repeat)
        if first is not None:
            origin = {name: getattr(first, name) for name in ("rate_source", "latency_bound_source")}
            benchmark = benchmark.model_copy(update=origin)
        self._keep(measured, benchmark)

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

    def _keep(self, measured: Measured, benchmark: Benchmark) -> None:
        experiment, store = self._experiment, self._experiment.store
        for name, text in measured.observation.logs.items():
            store.write_text(f"cells/{benchmark.name}/{name}", text)
        store.write_text(benchmark.telemetry_file, json.dumps(measured.observation.telemetry) + "\n")
        requests, tokens = sample_tables(measured.observation.columns)
        store.write_samples(benchmark.samples_file, requests)
        if benchmark.tokens_file:
            store.write_samples(benchmark.tokens_file, tokens)
        evidence = _run_evidence(experiment.record, measured)
        experiment.update(benchmarks=(*experiment.record.benchmarks, benchmark), evidence=evidence)
        text = micro_text(experiment.record)
        if text:
            store.write_text(MICRO_TEXT, text)
        experiment.ended(benchmark.name, valid=benchmark.valid)
        self._view.cell_ended(
            CellFigures(
                cell=benchmark.name,
                device=benchmark.device,
                throughput_per_s=benchmark.throughput_samples_per_sec,
                p90_ms=benchmark.latency_p90_ms,
                p99_ms=benchmark.latency_p99_ms,
                valid=benchmark.valid,
                disturbed=bool(benchmark.disturbed),
            )
        )


def _at_the_rate_of(first: Benchmark, cell: Cell) -> Cell:
    """Return the cell at the server rate and bound of its first repeat; at another rate they could not be compared."""
    if not first.target_qps:
        return cell
    load = dataclasses.replace(cell.load, qps=first.target_qps, bound_ms=first.latency_bound_ms or 0.0, find_peak=False)
    return dataclasses.replace(cell, load=load)


def _run_evidence(record: RunRecord, measured: Measured) -> dict[str, Any]:
    """Return the run's evidence: that of its last cell, or none if any cell has none."""
    cells = [each.evidence for each in record.benchmarks if each.evidence]
    broken = next((each for each in cells if each.get("active") is not True), None)
    return dict(broken or measured.evidence.to_dict())
