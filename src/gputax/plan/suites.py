"""Suites are files: read one, check it, and combine it with the user's choices into cells."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gputax.errors import UsageError, unknown_name
from gputax.plan.budgets import Budgets, budgets_from_table, parse_budgets
from gputax.plan.cells import (
    MULTI_STREAM_SAMPLES_PER_QUERY,
    SCENARIOS,
    UNBATCHED,
    Cell,
    LoadPlan,
    Setup,
    absolute,
    device_named,
    precision_named,
    scenario_named,
)
from gputax.plan.driver import chosen_engine, refuse_driver_contradictions
from gputax.plan.engines import DEFAULT_ENGINE, ENGINES, parse_engine, refuse_unused_weights
from gputax.plan.own_model import OwnModel, refuse_batch_of_own, refuse_own_model
from gputax.plan.own_program import ENGINE as PROGRAM_ENGINE
from gputax.plan.own_program import FEWEST_REPETITIONS, LONGEST_S, OwnProgram
from gputax.plan.own_program import SCENARIOS as PROGRAM_SCENARIOS
from gputax.plan.servers import SCENARIOS as SERVER_SCENARIOS
from gputax.plan.servers import is_server, refuse_server_contradictions, server_workload
from gputax.plan.workloads import MICRO, MICRO_SCENARIOS, expanded, is_micro, workload_facts

PACKAGE = Path(__file__).resolve().parent.parent
# In a wheel the suites are inside the package; in a checkout, at its root.
SUITE_DIRECTORIES = (PACKAGE / "suites", PACKAGE.parent.parent / "suites")
SCENARIO_KEYS = {
    "batch",
    "duration_s",
    "min_samples",
    "max_duration_s",
    "percentile",
    "bound_ms",
    "max_wait_us",
    "pilot_s",
}
MICRO_KEYS = {"duration_s", "min_samples", "max_duration_s", "pilot_s"}
# Default for a suite without `micro`: 1000 runs of each operation, but less than a second.
MICRO_SIZES = {"duration_s": 0.1, "min_samples": 1000, "max_duration_s": 0.8, "pilot_s": 0.15}


@dataclass(frozen=True)
class Suite:
    """Named sizes for every scenario."""

    name: str
    title: str
    scenarios: tuple[str, ...]
    sample_count: int
    loads: Mapping[str, LoadPlan]
    batches: Mapping[str, tuple[int, ...]]
    budgets: Budgets = field(default_factory=Budgets)
    """The budgets for `duet` and `compare`; `run` does not judge."""


@dataclass(frozen=True)
class Choices:
    """The user's choices on top of the suite; empty means the suite's value."""

    workloads: tuple[str, ...] = ("resnet50",)
    scenarios: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    environment: str = "bare"
    setup: Mapping[str, Any] = field(default_factory=dict)
    load: Mapping[str, Any] = field(default_factory=dict)


def suite_names() -> list[str]:
    """Return the names of the suites that ship with gputax."""
    found = [path.stem for directory in SUITE_DIRECTORIES for path in sorted(directory.glob("*.toml"))]
    return list(dict.fromkeys(found))


def load_suite(name: str) -> Suite:
    """Read a suite by name, or the user's own file by path."""
    candidates = [directory / f"{name}.toml" for directory in SUITE_DIRECTORIES]
    if name.endswith(".toml"):
        candidates = [Path(name)]
    for path in candidates:
        if path.is_file():
            return parse_suite(path.stem, _text(path), str(path))
    if name.endswith(".toml"):
        raise UsageError(f"suite file {name!r} not found")
    if Path(name).is_file():
        raise UsageError(f"{name!r} is not a suite file", next_step="a suite is a TOML file whose name ends in .toml")
    raise unknown_name("suite", name, suite_names())


def parse_suite(name: str, text: str, where: str) -> Suite:
    """Check every key of a suite file, because a misspelt one would silently measure something else."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"not a TOML file: {error}", where=where) from error
    known = {"title", "official", "scenarios", "sample_count", "budget", MICRO, *SCENARIOS}
    for key in data:
        if key not in known:
            raise _placed(unknown_name("key", key, sorted(known)), where)
    try:
        scenarios = tuple(scenario_named(str(name)) for name in data.get("scenarios", ()))
    except UsageError as error:
        raise _placed(error, where) from error
    official = bool(data.get("official", False))
    loads, batches = {}, {}
    for scenario in SCENARIOS:
        section = _section(data, scenario, where)
        for key in section:
            if key not in SCENARIO_KEYS:
                raise _placed(unknown_name(f"key of [{scenario}]", key, sorted(SCENARIO_KEYS)), where)
        loads[scenario] = _load_plan(section, official, f"{where} [{scenario}]")
        batches[scenario] = _batches(section.get("batch", [1]), f"{where} [{scenario}]")
    sizes = _section(data, MICRO, where)
    for key in sizes:
        if key not in MICRO_KEYS:
            raise _placed(unknown_name(f"key of [{MICRO}]", key, sorted(MICRO_KEYS)), where)
    loads[MICRO] = _load_plan({**MICRO_SIZES, **sizes}, False, f"{where} [{MICRO}]")
    budgets = budgets_from_table(_section(data, "budget", where), f"{where} [budget]")
    title, sample_count = str(data.get("title", name)), int(data.get("sample_count", 64))
    return Suite(name, title, scenarios, sample_count, loads, batches, budgets)


def wanted_budgets(words: Sequence[str], suite: str) -> Budgets:
    """Return the command line's values, completed from the named suite."""
    given = parse_budgets(words)
    return given.over(load_suite(suite).budgets) if suite else given


def load_plan(
    suite: str = "quick",
    *,
    workloads: Sequence[str] = ("resnet50",),
    scenarios: Sequence[str] = (),
    batches: Sequence[int] = (),
    environment: str = "bare",
    engine: str = "",
    device: str = "auto",
    precision: str = "fp32",
    threads: int = 0,
    weights: str = "",
    dataset: str = "",
    seed: int = 7,
    libcuda: str = "",
    own: OwnModel | None = None,
    program: OwnProgram | None = None,
    qps: float = 0.0,
    find_peak: bool = False,
    bound_ms: float = 0.0,
    max_wait_us: int = 0,
) -> tuple[Cell, ...]:
    """Return the cells that `run` measures: a suite by name or file, and the choices on top of it.

    A model of the user's (`own_model()`) or a program of the user's takes the place of the workloads.
    """
    named = load_suite(suite)
    if program is not None and program.words:
        return _program_cells(named, program, scenarios, environment, device, absolute(libcuda), threads, seed)
    if is_server(engine):
        refuse_server_contradictions(
            engine, (environment,), weights=weights, dataset=dataset, libcuda=libcuda, threads=threads,
            model=own.file if own else "", precision=precision.removeprefix("fp32"),
        )  # fmt: skip
        return _server_cells(
            named, Choices((), tuple(scenarios), tuple(batches), environment), engine, device, seed,
            {"qps": qps, "find_peak": find_peak, "bound_ms": bound_ms},
        )  # fmt: skip
    if own is not None and own.file:
        workloads = (own.name,)
    setup = {
        "engine": engine,
        "device": device_named(device),
        "precision": precision_named(precision),
        "threads": threads,
        "weights": absolute(weights),
        "dataset": absolute(dataset),
        "seed": seed,
        "libcuda": absolute(libcuda),
        "own": own or OwnModel(),
    }
    if engine:
        parse_engine(engine)
    chosen = tuple(scenario_named(name) for name in scenarios)
    load = {"qps": qps, "find_peak": find_peak, "bound_ms": bound_ms, "max_wait_us": max_wait_us}
    _refuse_contradictions(chosen or named.scenarios, workloads, batches, setup, load)
    given = {key: value for key, value in load.items() if value}
    return plan_cells(named, Choices(tuple(workloads), chosen, tuple(batches), environment, setup, given))


def _refuse_contradictions(
    scenarios: tuple[str, ...],
    workloads: Sequence[str],
    batches: Sequence[int],
    setup: Mapping[str, Any],
    load: Mapping[str, Any],
) -> None:
    if load["qps"] and load["find_peak"]:
        raise UsageError("--qps sets the rate and --find-peak searches for it", next_step="use one of them")
    server_only = [key for key, value in load.items() if value]
    if server_only and "server" not in scenarios:
        option = "--" + server_only[0].replace("_", "-")
        raise UsageError(
            f"{option} is for the server scenario, which is not selected", next_step="add --scenario server"
        )
    if batches and not {"offline", "server", "saturate"} & set(scenarios):
        raise UsageError(
            f"--batch does not apply to {', '.join(scenarios)}",
            next_step="drop it, or add --scenario offline",
        )
    if setup["weights"] and len(workloads) > 1:
        raise UsageError("--weights is a file for one model, but there are several workloads")
    refuse_unused_weights(setup["weights"], setup["engine"] or DEFAULT_ENGINE)


def plan_cells(suite: Suite, choices: Choices) -> tuple[Cell, ...]:
    """Return the cells in the order in which they are measured."""
    scenarios = choices.scenarios or suite.scenarios
    workloads = expanded(choices.workloads)
    if not scenarios and not all(is_micro(workload) for workload in workloads):
        raise UsageError(
            f"the suite {suite.name} has no scenario", next_step='add scenarios = ["offline"] to it, or --scenario'
        )
    for scenario in scenarios:
        scenario_named(scenario)
    cells = []
    for workload in workloads:
        facts = workload_facts(workload)
        if is_micro(workload):
            cells += _micro_cells(suite, choices, workload)
            continue
        shapes = [(scenario, batch) for scenario in scenarios for batch in _shapes(suite, choices, scenario)]
        setup = Setup(
            workload=workload,
            sample_count=suite.sample_count or facts.official_sample_count,
            max_batch=max(batch for _, batch in shapes),
            **_setup(choices, workload),
        )
        refuse_batch_of_own(setup.own, [batch for _, batch in shapes])
        refuse_own_model(
            setup.own, engine=setup.engine, weights=setup.weights, dataset=setup.dataset, precision=setup.precision
        )
        refuse_driver_contradictions(choices.environment, setup)
        for scenario, batch in shapes:
            load = dataclasses.replace(suite.loads[scenario], **choices.load)
            if load.official and scenario == "offline":
                load = dataclasses.replace(load, min_samples=facts.offline_min_samples)
            cells.append(Cell(setup, scenario, batch, choices.environment, load=load))
    return tuple(cells)


def _program_cells(
    suite: Suite,
    program: OwnProgram,
    scenarios: Sequence[str],
    environment: str,
    device: str,
    libcuda: str,
    threads: int,
    seed: int,
) -> tuple[Cell, ...]:
    """Return the only cell of a program: one repetition after the other, for the suite's time of `saturate`."""
    for name in scenarios:
        if scenario_named(name) not in PROGRAM_SCENARIOS:
            raise UsageError(
                f"a program of yours makes its own requests: it has no scenario {name}", next_step="drop --scenario"
            )
    setup = Setup(
        program.name, engine=PROGRAM_ENGINE, device=device_named(device), threads=threads, sample_count=1, max_batch=1,
        seed=seed, libcuda=libcuda, program=program,
    )  # fmt: skip
    refuse_driver_contradictions(environment, setup)
    load = dataclasses.replace(suite.loads["saturate"], min_samples=FEWEST_REPETITIONS, max_duration_s=LONGEST_S)
    return (Cell(setup, PROGRAM_SCENARIOS[0], 1, environment, load=load),)


def _server_cells(
    suite: Suite, choices: Choices, engine: str, device: str, seed: int, load: Mapping[str, Any]
) -> tuple[Cell, ...]:
    """Return the cells of a server; the batch is the number of requests in flight, of `saturate` alone."""
    scenarios = tuple(map(scenario_named, choices.scenarios)) or ("server",)
    for name in scenarios:
        if name not in SERVER_SCENARIOS:
            raise UsageError(
                f"a server is asked one request at a time: it has no scenario {name}",
                next_step=f"use --scenario {' or '.join(SERVER_SCENARIOS)}",
            )
    if any(load.values()) and "server" not in scenarios:
        option = next(name for name, value in load.items() if value).replace("_", "-")
        raise UsageError(f"--{option} is for the server scenario", next_step="add --scenario server")
    if load["qps"] and load["find_peak"]:
        raise UsageError("--qps sets the rate and --find-peak searches for it", next_step="use one of them")
    if choices.batches and "saturate" not in scenarios:
        raise UsageError("--batch is the number of requests in flight", next_step="add --scenario saturate")
    if device != "auto":
        raise UsageError("a server chooses its device itself", next_step=f"drop --device {device}")
    batches = choices.batches or (1,)
    setup = Setup(
        server_workload(engine, seed), engine=engine, sample_count=1, max_batch=max(batches), threads=1, seed=seed
    )
    cells = []
    for scenario in scenarios:
        given = {name: value for name, value in load.items() if value and scenario == "server"}
        plan = dataclasses.replace(suite.loads[scenario], **given, official=False)
        for batch in batches if scenario == "saturate" else (1,):
            cells.append(Cell(setup, scenario, batch, choices.environment, load=plan))
    return tuple(cells)


def _micro_cells(suite: Suite, choices: Choices, workload: str) -> list[Cell]:
    """Return the cells of one operation: a closed loop, unless a scenario was named."""
    for scenario in choices.scenarios:
        if scenario not in MICRO_SCENARIOS:
            raise UsageError(
                f"{workload} runs one operation at a time: it has no scenario {scenario}",
                next_step=f"use --scenario {' or '.join(MICRO_SCENARIOS)}",
            )
    if choices.batches not in ((), (1,)):
        raise UsageError(f"{workload} has no batches", next_step="drop --batch")
    setup = Setup(workload=workload, sample_count=1, max_batch=1, **_setup(choices, workload))
    if not ENGINES[parse_engine(setup.engine).name].runs_operations:
        raise UsageError(f"the engine {setup.engine} cannot run {workload}", next_step="drop --engine")
    refuse_driver_contradictions(choices.environment, setup)
    scenarios = choices.scenarios or MICRO_SCENARIOS[:1]
    return [Cell(setup, scenario, 1, choices.environment, load=suite.loads[MICRO]) for scenario in scenarios]


def _setup(choices: Choices, workload: str) -> dict[str, Any]:
    given = {name: str(choices.setup.get(name, "")) for name in ("engine", "device", "libcuda")}
    engine = chosen_engine(workload, given["engine"], (choices.environment,), given["device"], given["libcuda"])
    return {**choices.setup, "engine": engine}


def _shapes(suite: Suite, choices: Choices, scenario: str) -> tuple[int, ...]:
    if scenario in UNBATCHED:
        return (MULTI_STREAM_SAMPLES_PER_QUERY if scenario == "multi-stream" else 1,)
    if choices.setup.get("own", OwnModel()).single:
        return choices.batches or (1,)
    return choices.batches or suite.batches[scenario]


def _load_plan(section: Mapping[str, Any], official: bool, where: str) -> LoadPlan:
    values: dict[str, Any] = {
        ("percentile" if key == "percentile" else key): value for key, value in section.items() if key != "batch"
    }
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise UsageError(f"{key} = {value!r} is not a number of zero or more", where=where)
    # A scenario that is sized by samples has no duration.
    values.setdefault("duration_s", 0.0)
    values.setdefault("min_samples", 1)
    plan = LoadPlan(**values, official=official)
    if not 0.5 <= plan.percentile < 1:
        raise UsageError(f"percentile = {plan.percentile} is not between 0.5 and 1", where=where)
    return plan


def _batches(values: Sequence[Any], where: str) -> tuple[int, ...]:
    if not isinstance(values, list) or not values or not all(type(value) is int and value > 0 for value in values):
        raise UsageError(f"batch = {values!r} is not a list of whole numbers above zero", where=where)
    return tuple(values)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"not a TOML file: {error}", where=str(path)) from error


def _section(data: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    section = data.get(name, {})
    if not isinstance(section, dict):
        raise UsageError(
            f"{name} = {section!r} is not a table", where=where, next_step=f"write [{name}] and its keys below"
        )
    return section


def _placed(error: UsageError, where: str) -> UsageError:
    error.where = where
    return error
