"""Measure one cell: pilot, size the load, apply it, and judge the result."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gputax.environments.environment import Evidence
from gputax.measure import sizing
from gputax.measure.session import Observation, WorkerSession
from gputax.measure.sizing import (
    FEWEST_QUERIES,
    Bound,
    Pilot,
    query_count,
    server_bound,
    server_load,
    stream_load,
)
from gputax.measure.summary import Figures, clock_agreement, summarise
from gputax.measure.view import RunView
from gputax.plan.cells import Cell
from gputax.plan.environment import PROXY, EnvironmentName
from gputax.plan.notices import Notice
from gputax.plan.servers import ERROR_BOUND, FAILURE_LOG, TOO_MANY_FAILED
from gputax.plan.tokens import TPOT, TTFT
from gputax.results.columns import latencies_ns
from gputax.results.importers.loadgen import LoadGenLog, parse_detail
from gputax.results.token_series import token_series
from gputax.stats.percentiles import floor_for
from gputax.text import digits
from gputax.worker.probes.disturbance import BUSY_NEIGHBOURS, CELL_LIMITS, beyond, reasons

# A result with one of these notices is invalid.
SPOILING = ("clock-jump", "no-evidence", TOO_MANY_FAILED)
PROBE_S = 4.0
# A probe that costs a third of the measurement or more is not worth it; the measurement serves as the probe.
PROBE_WORTH = 3.0
MAIN_TRIES = 3


@dataclass(frozen=True)
class Attempt:
    """One attempted server rate."""

    rate_per_s: float
    kind: Literal["probe", "measurement"]
    held: bool
    over_bound_share: float


@dataclass(frozen=True)
class Measured:
    """One cell's figures with everything needed to check them."""

    cell: Cell
    observation: Observation
    figures: Figures
    log: LoadGenLog | None
    warmup_s: float
    bound: Bound | None
    notices: tuple[Notice, ...]
    attempts: tuple[Attempt, ...] = ()
    rate_source: str = ""

    evidence: Evidence = dataclasses.field(default_factory=Evidence)

    @property
    def valid(self) -> bool:
        """Whether the result is valid: LoadGen says VALID, the clock did not jump, the layer was active."""
        spoilt = any(notice.code in SPOILING for notice in self.notices)
        return (self.log is None or self.log.valid) and not spoilt

    @property
    def disturbed(self) -> tuple[str, ...]:
        """Why the machine was not quiet enough for a verdict; a GPU proxy beside the worker is expected to work."""
        proxied = PROXY in EnvironmentName.parse(self.cell.environment).layers
        return reasons(beyond(self.observation.telemetry, CELL_LIMITS, (BUSY_NEIGHBOURS,) if proxied else ()))

    def proven(self, evidence: Evidence) -> Measured:
        """Return the cell with its evidence; without evidence of the layer the result is invalid."""
        notices = self.notices
        if not evidence.active:
            text = f"INVALID: {self.cell.environment} was not active: {evidence.why_not}"
            notices = (*notices, Notice("no-evidence", text))
        if evidence.warning:
            notices = (*notices, Notice("technique", evidence.warning))
        if evidence.compiler_warning:
            notices = (*notices, Notice("soft-compile", f"software device: {evidence.compiler_warning}"))
        return dataclasses.replace(self, notices=notices, evidence=evidence)

    @property
    def over_bound_share(self) -> float | None:
        """The share of server queries above the latency bound; with tokens, above that of the first or the others."""
        if self.bound is None:
            return None
        series = token_series(self.cell.scenario, self.observation.columns)
        if self.bound.tpot_ms and series:
            late_first = series[TTFT] > self.bound.ms * 1e6
            slow = series[TPOT] > self.bound.tpot_ms * 1e6
            return float(np.mean(late_first | slow if slow.size == late_first.size else late_first))
        late = latencies_ns(self.cell.scenario, self.observation.columns) > self.bound.ms * 1e6
        # A request that failed was not answered in time either.
        return float((np.count_nonzero(late) + self.figures.failed) / (late.size + self.figures.failed))

    @property
    def keeps_bound(self) -> bool:
        """Whether a server's rate held: by LoadGen's early stopping, or without LoadGen by the share that was late."""
        if self.log is not None:
            return bool(self.log.values.get("early_stopping_met", True))
        return (self.over_bound_share or 0.0) <= 1.0 - self.cell.load.percentile


def measure_cell(session: WorkerSession, cell: Cell, view: RunView) -> Measured:
    """Measure the cell on a prepared worker."""
    view.phase("warm-up and pilot")
    pilot = session.pilot(cell.batch_size, cell.load.pilot_s)
    if cell.scenario == "server":
        return _measure_server(session, cell, pilot, view)
    view.phase("measuring")
    observation = session.apply(stream_load(cell, pilot))
    return _judged(cell, observation, pilot.elapsed_s, None)


def _measure_server(session: WorkerSession, cell: Cell, pilot: Pilot, view: RunView) -> Measured:
    single = pilot if cell.batch_size == 1 else session.pilot(1, cell.load.pilot_s)
    warmup_s = pilot.elapsed_s + (0.0 if single is pilot else single.elapsed_s)
    bound = server_bound(cell, single)
    capacity = max(pilot.rate_per_s, single.rate_per_s)
    attempts: list[Attempt] = []
    rate, source = _search_rate(session, cell, bound, capacity, attempts, view)
    for attempt in range(MAIN_TRIES):
        view.phase(f"measuring at {digits(rate, 4)} queries/s, bound {bound.ms:g} ms")
        load = server_load(cell, rate, bound, query_count(cell.load, rate, _fewest(cell)))
        measured = _judged(cell, session.apply(load), warmup_s, bound)
        held = measured.valid and measured.keeps_bound
        attempts.append(Attempt(rate, "measurement", held, measured.over_bound_share or 0.0))
        if cell.load.qps or measured.keeps_bound or attempt == MAIN_TRIES - 1:
            break
        view.phase(f"{digits(rate, 4)}/s was too fast for the bound; trying {digits(rate * sizing.STEP_DOWN, 4)}/s")
        rate *= sizing.STEP_DOWN
    lost = [each for each in attempts if each.kind == "measurement" and not each.held and each.rate_per_s != rate]
    if lost:
        tried = ", ".join(f"{digits(each.rate_per_s, 4)}/s ({100 * each.over_bound_share:.0f} % late)" for each in lost)
        note = Notice("rate-stepped-down", f"rates tried first, too fast for the bound: {tried}", float(len(lost)))
        measured = dataclasses.replace(measured, notices=(*measured.notices, note))
    return dataclasses.replace(measured, attempts=tuple(attempts), rate_source=source)


def _search_rate(
    session: WorkerSession, cell: Cell, bound: Bound, capacity_per_s: float, attempts: list[Attempt], view: RunView
) -> tuple[float, str]:
    """Return the rate to measure at and its origin; every probe is added to `attempts`."""
    plan = cell.load
    if plan.qps:
        return plan.qps, "given by --qps or --like"

    def probe(rate: float, repeat: int) -> bool:
        view.phase(f"probing {digits(rate, 4)} queries/s")
        queries = max(_fewest(cell) if plan.find_peak else FEWEST_QUERIES, int(PROBE_S * rate))
        probed = _judged(cell, session.apply(server_load(cell, rate, bound, queries, seed_offset=repeat)), 0.0, bound)
        late = probed.over_bound_share or 0.0
        held = probed.valid and probed.keeps_bound if plan.find_peak else late <= 1.0 - plan.percentile
        attempts.append(Attempt(rate, "probe", held, late))
        return held

    if plan.find_peak:
        search = sizing.find_peak(capacity_per_s, probe)
        failing = digits(search.first_failing_per_s or 0.0, 4)
        return search.rate_per_s, f"peak: {digits(search.rate_per_s, 4)}/s held, {failing}/s did not"
    rate = sizing.FIRST_SHARE * capacity_per_s
    measurement_s = query_count(plan, rate, _fewest(cell)) / rate
    if measurement_s >= PROBE_WORTH * max(PROBE_S, FEWEST_QUERIES / rate):
        rate = sizing.find_rate(capacity_per_s, probe).rate_per_s
    return rate, f"chosen by gputax from the pilot's {digits(capacity_per_s, 4)} samples/s; it is not the capacity"


def _fewest(cell: Cell) -> int:
    """Return the minimum number of queries for a VALID server run in LoadGen."""
    return floor_for(cell.load.percentile)


def failure_notices(figures: Figures, logs: Mapping[str, str]) -> list[Notice]:
    """Return how many requests failed and why; beyond the bound the result is invalid."""
    if not figures.failed:
        return []
    rate = figures.failed / (figures.failed + figures.queries)
    kinds = [line.split("\t") for line in logs.get(FAILURE_LOG, "").splitlines()]
    why = "; ".join(f"{count} x {words}" for _, count, words, *_ in kinds[:3])
    text = f"{figures.failed} of {figures.failed + figures.queries} requests failed ({digits(100 * rate, 2)} %): {why}"
    if rate <= ERROR_BOUND:
        return [Notice("requests-failed", text, 100 * rate)]
    return [Notice(TOO_MANY_FAILED, f"INVALID: {text}; the bound is {100 * ERROR_BOUND:g} %", 100 * rate)]


def _judged(
    cell: Cell,
    observation: Observation,
    warmup_s: float,
    bound: Bound | None,
) -> Measured:
    figures = summarise(cell.scenario, observation.columns)
    detail = observation.logs.get("mlperf_log_detail.txt")
    log = parse_detail(detail) if detail else None
    notices = [*observation.notices, *figures.notices]
    limit_s = cell.load.max_duration_s
    if limit_s and figures.duration_s > 1.5 * limit_s:
        text = f"took {figures.duration_s:.0f} s instead of {limit_s:g} s: fewer queries are too few for a percentile"
        notices.append(Notice("longer-than-asked", text, figures.duration_s))
    notices += failure_notices(figures, observation.logs)
    if log is not None:
        # LoadGen's offline percentiles are those of one query with all samples; ours are of batches.
        if cell.scenario != "offline":
            notices += clock_agreement(figures, log)
        notices += [Notice("loadgen-invalid", f"LoadGen: INVALID: {reason}") for reason in log.invalid_reasons]
        if log.errors:
            notices.append(Notice("loadgen-errors", f"LoadGen logged {log.errors} errors", float(log.errors)))
    return Measured(
        cell=cell,
        observation=observation,
        figures=figures,
        log=log,
        warmup_s=warmup_s,
        bound=bound,
        notices=tuple(notices),
    )
