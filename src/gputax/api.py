"""The public API: each command of the command line as a function, for notebooks and programs."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from gputax.errors import ResultsError, UsageError, unknown_name
from gputax.plan.cells import (
    MULTI_STREAM_SAMPLES_PER_QUERY,
    Cell,
    Setup,
    absolute,
    device_named,
    plan_id,
    precision_named,
    scenario_named,
)
from gputax.plan.options import VARIABLE_OPTIONS, EnvironmentOptions
from gputax.plan.suites import load_plan

if TYPE_CHECKING:
    from gputax.advise.advice import Advice
    from gputax.measure.duet.pairs import OnPair
    from gputax.measure.duet.request import DuetRequest
    from gputax.measure.run.like import LikePlan
    from gputax.measure.view import RunView
    from gputax.plan.techniques import SharePlan
    from gputax.report.model import Report
    from gputax.report.output import Format
    from gputax.results.documents.comparison import Comparison, Resolution
    from gputax.results.documents.run import RunRecord
    from gputax.results.documents.sharing import SharingRecord

    Results: TypeAlias = RunRecord | Comparison | SharingRecord

__all__ = [
    "advise",
    "compare",
    "duet",
    "duet_request",
    "load_plan",
    "plan_like",
    "read_results",
    "report",
    "resolution",
    "run",
    "share",
    "share_plan",
]

StrPath: TypeAlias = str | os.PathLike[str]
Say: TypeAlias = Callable[[str], None]
MODEL, OPERATION = "yolos-small", "micro:operation"
# With neighbours, each restart has many slots of this length: at 10 s, all five kinds took over half an hour.
WINDOW_S, NEIGHBOURS_WINDOW_S = 10.0, 2.0
BESIDE = (2,)


@contextmanager
def variables_set(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables such as GPUTAX_SOFT_KERNEL_US for workers started inside this context."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def variables_named(names: Mapping[str, object]) -> dict[str, str]:
    """Return the environment variables for options such as {"soft_kernel_us": 125}; docs/variables.md lists them."""
    known = {option.keyword: option.variable for option in VARIABLE_OPTIONS.values()}
    for name in names:
        if name not in known:
            raise unknown_name("option", name, known)
    return {known[name]: str(value) for name, value in names.items()}


def run(
    plan: Sequence[Cell] | None = None,
    *,
    out: StrPath | None = None,
    repeats: int = 1,
    overwrite: bool = False,
    stall_timeout_s: float = 0.0,
    options: EnvironmentOptions | None = None,
    view: RunView | None = None,
    **variables: object,
) -> RunRecord:
    """Measure the cells of a plan (default: `load_plan()`) into a directory; the same call resumes an unfinished one.

    With `repeats` every cell is measured so often, each time by a new worker; a complete run in `out` is extended by
    the repeats that it lacks. `variables` are options such as `soft_kernel_us=125`.
    """
    if repeats < 1:
        raise UsageError(f"{repeats} repeats measure nothing", next_step="repeats=5")
    from gputax.measure.run.execution import Run
    from gputax.measure.view import SilentView

    settings = variables_named(variables)
    cells = tuple(load_plan() if plan is None else plan)
    directory = run_directory(cells, out)
    with variables_set(settings):
        return Run(
            cells,
            directory,
            view or SilentView(),
            repeats=repeats,
            overwrite=overwrite,
            stall_timeout_s=stall_timeout_s,
            options=options,
        ).execute()


def plan_like(
    directory: StrPath,
    environment: str = "bare",
    *,
    workloads: Sequence[str] = (),
    scenarios: Sequence[str] = (),
    batches: Sequence[int] = (),
    **options: Any,
) -> LikePlan:
    """Return the cells of an earlier run for another environment, with its rates, bounds, threads and inputs.

    `run(like.cells, repeats=like.repeats)` measures what `compare` can then judge. Options such as `threads=4` win;
    what they contradict is in `contradictions`.
    """
    from gputax.measure.run.like import plan_like as planned
    from gputax.places import refuse_unknown
    from gputax.results.reading import RUN
    from gputax.results.store import read_document

    refuse_unknown(environment)
    record = read_document(RUN, Path(directory))
    return planned(
        record,
        str(directory),
        environment,
        workloads=workloads,
        scenarios=scenarios,
        batches=batches,
        options=options,
    )


def run_directory(cells: Sequence[Cell], out: StrPath | None) -> Path:
    """Return the directory of a run: `out`, else results/ENV-TIME, or the unfinished directory of the same plan."""
    from gputax.results.reading import RUN
    from gputax.results.store import default_directory

    cells = tuple(cells)
    if not cells:
        raise UsageError("the plan has no cells", next_step="gputax.load_plan()")
    return Path(out) if out else default_directory(Path("results"), RUN, plan_id(cells), cells[0].environment)


def duet_request(
    a: str,
    b: str,
    *,
    workload: str | Sequence[str] = "resnet50",
    scenario: str = "single-stream",
    batch: int = 1,
    engine: str = "",
    engine_b: str = "",
    device: str = "auto",
    precision: str = "fp32",
    threads: int = 0,
    libcuda: StrPath = "",
    budgets: Sequence[str] = (),
    suite: str = "",
    width_percent: float | None = None,
    max_time_s: float = 120.0,
    control: bool = True,
    seed: int = 7,
    stall_timeout_s: float = 0.0,
    options: EnvironmentOptions | None = None,
    for_a: Sequence[str] = (),
    for_b: Sequence[str] = (),
    accept_disturbed: bool = False,
    command: str = "",
) -> DuetRequest:
    """Return the request of a duet, or raise if it is invalid."""
    from gputax.measure.duet.request import DuetRequest
    from gputax.measure.duet.sides import SideSpec
    from gputax.places import refuse_unknown
    from gputax.plan.driver import chosen_engine, refuse_driver_contradictions
    from gputax.plan.engines import waiting_passively
    from gputax.plan.metrics import METRICS
    from gputax.plan.suites import wanted_budgets

    for name in (a, b):
        refuse_unknown(name)
    device, precision, scenario = device_named(device), precision_named(precision), scenario_named(scenario)
    workloads = _duet_workloads((workload,) if isinstance(workload, str) else tuple(workload), scenario)
    engine = chosen_engine(workloads[0], engine, (a, b), device, str(libcuda))
    batch = {"single-stream": 1, "multi-stream": MULTI_STREAM_SAMPLES_PER_QUERY}.get(scenario, batch)
    wanted = wanted_budgets(budgets, suite)
    by_metric = {name: wanted.for_metric(a, b, name) for name in METRICS}

    def side(label: str, environment: str, engine: str, changes: Sequence[str]) -> SideSpec:
        setup = Setup(
            workloads[0],
            engine=waiting_passively(engine),
            device=device,
            precision=precision,
            threads=threads,
            max_batch=max(batch, 1),
            sample_count=max(32, batch),
            seed=seed,
            libcuda=absolute(libcuda),
        )
        refuse_driver_contradictions(environment, setup)
        return SideSpec(label, environment, setup, (options or EnvironmentOptions()).changed(changes))

    return DuetRequest(
        side(a, a, engine, for_a),
        side(b if b != a else f"{b} (B)", b, engine_b or engine, for_b),
        scenario,
        batch,
        by_metric,
        None if width_percent is None else _above_zero(width_percent),
        max_time_s,
        control,
        seed,
        stall_timeout_s,
        command,
        injected=bool(engine_b),
        named=wanted.named(a, b),
        workloads=workloads,
        accept_disturbed=accept_disturbed,
    )


def duet(
    a: str | DuetRequest,
    b: str = "",
    *,
    out: StrPath | None = None,
    say: Say = lambda text: None,
    on_pair: OnPair = lambda rounds, elapsed_s: None,
    **more: Any,
) -> Comparison:
    """Measure two environments in alternation and judge B's overhead over A; `more` is passed to `duet_request`."""
    variables = {key: more.pop(key) for key in [option.keyword for option in VARIABLE_OPTIONS.values()] if key in more}
    request = duet_request(a, b, **more) if isinstance(a, str) else a
    from gputax.measure.duet.execution import execute_duet

    directory = Path(out) if out else duet_directory(request.a.environment, request.b.environment)
    with variables_set(variables_named(variables)):
        return execute_duet(request, directory, say, on_pair)


def resolution(
    environment: str = "bare",
    *,
    workload: str = "resnet50",
    engine: str = "",
    max_time_s: float = 30.0,
    say: Say = lambda text: None,
    on_pair: OnPair = lambda rounds, elapsed_s: None,
) -> Resolution:
    """Measure two equal sides: the smallest overhead that this machine can tell from nothing."""
    from gputax.measure.duet.execution import machine_resolution
    from gputax.measure.duet.sides import SideSpec
    from gputax.places import refuse_unknown
    from gputax.plan.driver import chosen_engine, refuse_driver_contradictions
    from gputax.plan.engines import waiting_passively
    from gputax.plan.workloads import workload_facts

    refuse_unknown(environment)
    workload_facts(workload)
    engine = waiting_passively(chosen_engine(workload, engine, (environment,)))
    setup = Setup(workload, engine=engine, sample_count=32, max_batch=1)
    refuse_driver_contradictions(environment, setup)
    return machine_resolution(SideSpec(environment, environment, setup), max_time_s, say, on_pair)


def duet_directory(a: str, b: str) -> Path:
    """Return the default directory of a duet."""
    words = ("".join(letter if letter.isalnum() else "-" for letter in name) for name in (a, b))
    return Path("results") / f"duet-{'-'.join(words)}-{time.strftime('%Y%m%d-%H%M%S')}"


def _duet_workloads(workloads: tuple[str, ...], scenario: str) -> tuple[str, ...]:
    """Return the workloads: one model, or operations of micro, which share one worker per side."""
    from gputax.plan.micro import MICRO, SCENARIOS, expanded, is_micro
    from gputax.plan.workloads import workload_facts

    workloads = expanded(workloads)
    for workload in workloads:
        workload_facts(workload)
    operations = [is_micro(workload) for workload in workloads]
    if len(workloads) > 1 and not all(operations):
        raise UsageError("a duet takes one model, or operations of micro", next_step="run one duet per model")
    if any(operations) and scenario not in SCENARIOS:
        raise UsageError(f"{MICRO} has no scenario {scenario}", next_step=f"use --scenario {' or '.join(SCENARIOS)}")
    return workloads


def _above_zero(percent: float) -> float:
    if not 0.0 < percent < math.inf:
        raise UsageError(f"--width {percent!r} is not a percentage above zero", next_step="e.g. --width 1%")
    return percent


def compare(
    base: StrPath,
    *others: StrPath,
    budgets: Sequence[str] = (),
    suite: str = "",
    force: bool = False,
    accept_disturbed: bool = False,
    spread_from: StrPath = "",
    command: str = "",
) -> Comparison:
    """Compare results on disk: our directories, LoadGen's output, older JSON, text files and pod logs.

    `k8s=FILE` says what a file is. One that cannot be compared is skipped with a warning, unless none is left.
    `spread_from` is a run with repeats on this machine; its spread serves sides that were measured once.
    """
    from gputax.plan.suites import wanted_budgets

    wanted = wanted_budgets(budgets, suite)
    from gputax.compare.document import compare_sources
    from gputax.compare.given import named_path, read_given
    from gputax.results.importers.detect import read_source

    environment, path = named_path(base)
    first = read_source(path, environment)
    rest, misfits = read_given(others)
    return compare_sources(
        first,
        rest,
        wanted,
        force=force,
        accept_disturbed=accept_disturbed,
        command=command,
        misfits=misfits,
        history=read_source(Path(spread_from)) if spread_from else None,
    )


def share_plan(
    place: str = "bare",
    *,
    techniques: Sequence[str] = (),
    tenants: Sequence[int] = (),
    workload: str = "",
    engine: str = "",
    device: str = "auto",
    precision: str = "fp32",
    threads: int = 0,
    weights: StrPath = "",
    libcuda: StrPath = "",
    batch: int = 1,
    repeats: int = 5,
    window_s: float | None = None,
    warmup_s: float = 2.0,
    slices: int = 0,
    seed: int = 7,
    beside_neighbours: bool = False,
) -> SharePlan:
    """Return the plan of a sharing experiment, or raise if it is invalid."""
    from gputax.plan.driver import chosen_engine
    from gputax.plan.engines import SYNONYMS as ENGINE_SYNONYMS
    from gputax.plan.engines import USER_ENGINES, parse_engine
    from gputax.plan.micro import expanded
    from gputax.plan.techniques import DEFAULT_TECHNIQUES, DEFAULT_TENANTS, SharePlan
    from gputax.plan.workloads import workload_facts

    named = tuple(techniques) or DEFAULT_TECHNIQUES[place]
    workloads = expanded((workload or (OPERATION if named == ("proxy",) else MODEL),))
    if len(workloads) != 1:
        raise UsageError("all tenants must run the same workload", next_step=f"e.g. --workload {OPERATION}")
    workload_facts(workloads[0])
    name = engine.partition(":")[0]
    if name not in ("", *USER_ENGINES):
        raise unknown_name("engine", name, USER_ENGINES, ENGINE_SYNONYMS)
    behind = ("bare+proxy",) if named == ("proxy",) else ()
    engine = chosen_engine(workloads[0], engine, behind, device, str(libcuda))
    parse_engine(engine)
    count = tuple(tenants) or DEFAULT_TENANTS
    if beside_neighbours and count not in (DEFAULT_TENANTS, BESIDE):
        raise UsageError("with a neighbour there are always two tenants", next_step="drop --tenants")
    if window_s is None:
        window_s = NEIGHBOURS_WINDOW_S if beside_neighbours else WINDOW_S
    if window_s <= 0:
        raise UsageError("--window must be above zero", next_step="e.g. --window 10s")
    setup = Setup(
        workloads[0],
        engine=engine,
        device=device_named(device),
        precision=precision_named(precision),
        threads=threads,
        weights=absolute(weights),
        sample_count=max(8, batch),
        max_batch=batch,
        seed=seed,
        libcuda=absolute(libcuda),
    )
    return SharePlan(
        place,
        named,
        BESIDE if beside_neighbours else count,
        setup,
        repeats=repeats,
        warmup_s=warmup_s,
        window_s=window_s,
        batch_size=batch,
        slices=slices,
        seed=seed,
    )


def share(
    plan: SharePlan | None = None,
    *,
    aggressors: Sequence[str] = (),
    victim: str = "single-stream",
    out: StrPath | None = None,
    overwrite: bool = False,
    optional: bool = False,
    stall_timeout_s: float = 0.0,
    prometheus: str = "",
    proxy_memory_mb: int = 0,
    accept_disturbed: bool = False,
    options: EnvironmentOptions | None = None,
    view: RunView | None = None,
    command: str = "",
    **variables: object,
) -> SharingRecord:
    """Measure tenants that share a device (default plan: `share_plan()`), or one tenant next to `aggressors`.

    With `optional`, a technique that is impossible here is skipped with a warning.
    """
    from gputax.measure.view import SilentView
    from gputax.places import shared_place

    plan = plan or share_plan(beside_neighbours=bool(aggressors))
    view = view or SilentView()
    directory = share_directory(plan, out, aggressors=aggressors, victim=victim)
    with variables_set(variables_named(variables)):
        place = shared_place(plan.place, options or EnvironmentOptions(), view.phase, proxy_memory_mb=proxy_memory_mb)
        try:
            if aggressors:
                from gputax.measure.neighbours.execution import NeighboursRequest, measure_neighbours

                asked = NeighboursRequest(
                    plan, victim, tuple(aggressors), directory, command, overwrite, optional, accept_disturbed
                )
                return measure_neighbours(asked, place, view)
            from gputax.measure.share.execution import ShareRequest, measure_sharing

            request = ShareRequest(
                plan, directory, command, overwrite, optional, stall_timeout_s, prometheus, accept_disturbed
            )
            return measure_sharing(request, place, view)
        finally:
            place.close()


def share_directory(
    plan: SharePlan, out: StrPath | None, *, aggressors: Sequence[str] = (), victim: str = "single-stream"
) -> Path:
    """Return the directory of an experiment: `out`, else results/share-PLACE-TIME, or this plan's unfinished one."""
    if out:
        return Path(out)
    from gputax.results.reading import SHARING
    from gputax.results.store import default_directory

    name = plan.id
    if aggressors:
        from gputax.measure.neighbours.execution import NeighboursRequest

        name = NeighboursRequest(plan, victim, tuple(aggressors), Path()).plan_id
    return default_directory(Path("results"), SHARING, name, f"share-{plan.place}")


def report(
    *results: StrPath | Report, out: StrPath | None = None, kind: Format | Literal[""] = "", overwrite: bool = False
) -> tuple[Path, ...]:
    """Write the report of result directories; returns the files. Default: report.html in the only directory."""
    from gputax.report.model import Report
    from gputax.report.output import format_of, save_report

    directories = [each for each in results if not isinstance(each, Report)]
    built = results[0] if isinstance(results[0], Report) else build_report(*directories)
    path = Path(out) if out else report_path(directories)
    return save_report(built, kind or format_of(path), path, overwrite=overwrite)


def build_report(*directories: StrPath) -> Report:
    """Return the report of result directories as tables and charts, before it is written in a format."""
    from gputax.report.sources import read_sources
    from gputax.report.story import build_report as built

    return built(read_sources([Path(each) for each in directories]))


def report_path(directories: Sequence[StrPath]) -> Path:
    """Return the path of the page: beside the results, or in the current directory if there are several."""
    only = Path(directories[0])
    if len(directories) > 1:
        return Path("report.html")
    return only / "report.html" if only.is_dir() else only.with_name("report.html")


def read_results(path: StrPath) -> Results:
    """Read a result directory or one of its documents: a run, a comparison or a sharing experiment."""
    from gputax.report.sources import read_sources

    found = read_sources([Path(path)])
    documents: list[Results] = [each.record for each in found.runs]
    documents += [each.comparison for each in found.comparisons]
    documents += [each.record for each in found.sharing]
    if len(documents) != 1:
        raise ResultsError(
            f"found {len(documents)} results, expected one", where=str(path), next_step="name one of their directories"
        )
    return documents[0]


def advise(
    results: StrPath,
    *,
    slo: Sequence[str] = (),
    rate_per_s: float | None = None,
    price_per_hour: float | None = None,
    currency: str = "",
    up_to: int | None = None,
    fit_to: Sequence[int] = (),
) -> Advice:
    """Recommend a technique and a number of tenants that meet a target, from a sharing result or `published:NAME`."""
    from gputax.advise.targets import Question, parse_targets

    for name, value in (("--rate", rate_per_s), ("--price", price_per_hour)):
        if value == 0.0:
            raise UsageError(f"{name} must be above zero", next_step=f"drop it, or e.g. {name} 3.67")
    if currency and price_per_hour is None:
        raise UsageError("--currency without a --price", next_step="e.g. --price 3.67 --currency USD")
    if not slo and rate_per_s is None:
        raise UsageError("no target or rate is given", next_step="e.g. --slo p99=50ms, or --rate 10")
    question = Question(parse_targets(tuple(slo)), rate_per_s, price_per_hour, currency, up_to)
    # Imported here: numpy and pydantic are not needed to refuse a wrong question.
    from gputax.advise.advice import advise as advise_on
    from gputax.advise.table import read_table

    return advise_on(read_table(str(results)), question, tuple(fit_to))
