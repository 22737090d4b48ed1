"""Plan a run like an earlier one, so that the two can be compared: same cells, rates, bounds, threads, inputs; pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gputax.errors import ResultsError, UsageError
from gputax.plan.cells import Cell, LoadPlan, Setup, absolute, device_named, precision_named, scenario_named
from gputax.plan.driver import refuse_driver_contradictions
from gputax.plan.engines import parse_engine
from gputax.plan.workloads import expanded
from gputax.results.documents.run import Benchmark, RunRecord

PATHS = ("weights", "dataset", "libcuda")
SETUP = ("engine", "device", "precision", "threads", "seed", *PATHS)
SERVER = ("qps", "bound_ms", "max_wait_us", "find_peak")


@dataclass(frozen=True)
class LikePlan:
    """The cells of a run that repeats an earlier one somewhere else."""

    cells: tuple[Cell, ...]
    repeats: int
    contradictions: tuple[str, ...] = ()
    """Options that won although they make the two runs not comparable."""


def plan_like(
    record: RunRecord,
    where: str,
    environment: str,
    *,
    workloads: Sequence[str] = (),
    scenarios: Sequence[str] = (),
    batches: Sequence[int] = (),
    options: Mapping[str, Any] | None = None,
) -> LikePlan:
    """Return the cells of the record in another environment; names choose among them, `options` are set explicitly."""
    if not record.benchmarks:
        raise ResultsError("no cell was measured in this run", where=where, next_step="finish it with the same command")
    options = dict(options or {})
    for name in options:
        if name not in (*SETUP, *SERVER):
            raise UsageError(f"{name} cannot be combined with --like", next_step=f"use {', '.join((*SETUP, *SERVER))}")
    cells = _planned(record, where)
    cells = _chosen(cells, "workload", expanded(tuple(workloads)), lambda cell: cell.setup.workload, where)
    cells = _chosen(cells, "scenario", tuple(map(scenario_named, scenarios)), lambda cell: cell.scenario, where)
    cells = _chosen(cells, "batch size", tuple(batches), lambda cell: cell.batch_size, where)
    measured = {benchmark.cell: benchmark for benchmark in reversed(record.benchmarks)}
    contradictions: dict[str, None] = {}
    found = []
    for cell in cells:
        like = _as_measured(cell, measured.get(cell.id))
        changed = _with_options(like, options)
        contradictions |= dict.fromkeys(_contradictions(like, changed))
        refuse_driver_contradictions(environment, changed.setup)
        found.append(dataclasses.replace(changed, environment=environment))
    return LikePlan(tuple(found), max(each.repeat for each in record.benchmarks), tuple(contradictions))


def _planned(record: RunRecord, where: str) -> tuple[Cell, ...]:
    """Return the cells as they were planned; records of earlier versions have only what was measured."""
    if not record.plan:
        largest = {each.workload: 1 for each in record.benchmarks}
        for each in record.benchmarks:
            largest[each.workload] = max(largest[each.workload], each.batch_size)
        return tuple(_of_benchmark(record, each, largest[each.workload]) for each in record.cells)
    try:
        return tuple(
            Cell(**{**data, "setup": Setup.from_dict(data["setup"]), "load": LoadPlan(**data["load"])})
            for data in record.plan
        )
    except (TypeError, KeyError) as error:
        raise ResultsError(f"the plan in this record cannot be used: {error}", where=where) from error


def _of_benchmark(record: RunRecord, benchmark: Benchmark, max_batch: int) -> Cell:
    facts = record.fingerprint.get("setups", {}).get(benchmark.workload, {})
    if benchmark.weights not in ("seeded", "none", "official"):
        raise UsageError(
            f"the record of {benchmark.cell} does not say where its weights are", next_step="add --weights FILE"
        )
    setup = Setup(
        benchmark.workload,
        engine=benchmark.engine,
        device=benchmark.device,
        precision=benchmark.precision,
        threads=benchmark.threads,
        weights="official" if benchmark.weights == "official" else "",
        sample_count=int(facts.get("sample_count") or 64),
        max_batch=max_batch,
    )
    load = benchmark.load
    plan = LoadPlan(
        duration_s=float(load.get("min_duration_s") or 0.0),
        min_samples=int(load.get("min_queries") or 64),
        percentile=float(load.get("percentile") or 0.99),
        max_wait_us=int(load.get("max_wait_us") or 0),
        official=bool(load.get("official")),
    )
    scenario = scenario_named(benchmark.scenario)
    return Cell(setup, scenario, benchmark.batch_size, benchmark.environment, benchmark.tenants, plan)


def _chosen(cells: tuple[Cell, ...], kind: str, wanted: Sequence[Any], of: Any, where: str) -> tuple[Cell, ...]:
    for value in wanted:
        if value not in map(of, cells):
            known = ", ".join(dict.fromkeys(str(of(cell)) for cell in cells))
            raise UsageError(f"the earlier run has no {kind} {value}", where=where, next_step=f"it has {known}")
    return tuple(cell for cell in cells if not wanted or of(cell) in wanted)


def _as_measured(cell: Cell, benchmark: Benchmark | None) -> Cell:
    """Return the cell with all that was chosen while it was measured: device, threads, rate and bound."""
    if benchmark is None:
        return cell
    setup = dataclasses.replace(cell.setup, device=benchmark.device, threads=benchmark.threads)
    load = cell.load
    if benchmark.target_qps:
        load = dataclasses.replace(
            load, qps=benchmark.target_qps, bound_ms=benchmark.latency_bound_ms or load.bound_ms, find_peak=False
        )
    return dataclasses.replace(cell, setup=setup, load=load)


def _with_options(cell: Cell, options: Mapping[str, Any]) -> Cell:
    setup: dict[str, Any] = {name: options[name] for name in SETUP if name in options}
    setup |= {name: absolute(setup[name]) for name in PATHS if name in setup}
    if "engine" in setup:
        parse_engine(setup["engine"])
    if "device" in setup:
        device_named(setup["device"])
    if "precision" in setup:
        precision_named(setup["precision"])
    load = {name: value for name, value in options.items() if name in SERVER and cell.scenario == "server"}
    if load.get("find_peak"):
        load["qps"] = 0.0
    return dataclasses.replace(
        cell, setup=dataclasses.replace(cell.setup, **setup), load=dataclasses.replace(cell.load, **load)
    )


def _contradictions(like: Cell, changed: Cell) -> list[str]:
    pairs = [(name, getattr(like.setup, name), getattr(changed.setup, name)) for name in SETUP if name != "libcuda"]
    pairs += [(name, getattr(like.load, name), getattr(changed.load, name)) for name in SERVER]
    return [
        f"--{name.replace('_', '-')} {after or 'none'} instead of {before or 'none'}"
        for name, before, after in pairs
        if before != after
    ]
