"""Suites are files: read one, check it, and turn it with the user's choices into cells."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gputax.errors import UsageError, unknown_name
from gputax.plan.cells import (
    MULTI_STREAM_SAMPLES_PER_QUERY,
    SCENARIOS,
    UNBATCHED,
    Cell,
    LoadPlan,
    Setup,
)
from gputax.plan.workload_facts import workload_facts

PACKAGE = Path(__file__).resolve().parent.parent
# In a wheel the suites lie inside the package; in a checkout, at its root.
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


@dataclass(frozen=True)
class Suite:
    """Named sizes for every scenario."""

    name: str
    title: str
    scenarios: tuple[str, ...]
    sample_count: int
    loads: Mapping[str, LoadPlan]
    batches: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Choices:
    """What the user asked for on top of the suite; empty means: as the suite says."""

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
            return parse_suite(path.stem, path.read_text(), str(path))
    if name.endswith(".toml"):
        raise UsageError(f"there is no suite file {name!r}")
    raise unknown_name("suite", name, suite_names())


def parse_suite(name: str, text: str, where: str) -> Suite:
    """Check every key of a suite file, because a misspelt one would silently measure something else."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"not a TOML file: {error}", where=where) from error
    known = {"title", "official", "scenarios", "sample_count", *SCENARIOS}
    for key in data:
        if key not in known:
            raise _placed(unknown_name("key", key, sorted(known)), where)
    scenarios = tuple(data.get("scenarios", ()))
    for scenario in scenarios:
        if scenario not in SCENARIOS:
            raise _placed(unknown_name("scenario", scenario, SCENARIOS), where)
    official = bool(data.get("official", False))
    loads, batches = {}, {}
    for scenario in SCENARIOS:
        section = data.get(scenario, {})
        for key in section:
            if key not in SCENARIO_KEYS:
                raise _placed(unknown_name(f"key of [{scenario}]", key, sorted(SCENARIO_KEYS)), where)
        loads[scenario] = _load_plan(section, official, f"{where} [{scenario}]")
        batches[scenario] = _batches(section.get("batch", [1]), f"{where} [{scenario}]")
    return Suite(name, str(data.get("title", name)), scenarios, int(data.get("sample_count", 64)), loads, batches)


def plan_cells(suite: Suite, choices: Choices) -> tuple[Cell, ...]:
    """Return the cells in the order in which they are measured."""
    scenarios = choices.scenarios or suite.scenarios
    for scenario in scenarios:
        if scenario not in SCENARIOS:
            raise unknown_name("scenario", scenario, SCENARIOS)
    cells = []
    for workload in choices.workloads:
        facts = workload_facts(workload)
        shapes = [(scenario, batch) for scenario in scenarios for batch in _shapes(suite, choices, scenario)]
        setup = Setup(
            workload=workload,
            sample_count=suite.sample_count or facts.official_sample_count,
            max_batch=max(batch for _, batch in shapes),
            **choices.setup,
        )
        for scenario, batch in shapes:
            load = dataclasses.replace(suite.loads[scenario], **choices.load)
            if load.official and scenario == "offline":
                load = dataclasses.replace(load, min_samples=facts.offline_min_samples)
            cells.append(Cell(setup, scenario, batch, choices.environment, load=load))
    return tuple(cells)


def _shapes(suite: Suite, choices: Choices, scenario: str) -> tuple[int, ...]:
    if scenario in UNBATCHED:
        return (MULTI_STREAM_SAMPLES_PER_QUERY if scenario == "multi-stream" else 1,)
    return choices.batches or suite.batches[scenario]


def _load_plan(section: Mapping[str, Any], official: bool, where: str) -> LoadPlan:
    values: dict[str, Any] = {
        ("percentile" if key == "percentile" else key): value for key, value in section.items() if key != "batch"
    }
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise UsageError(f"{key} = {value!r} is not a number of zero or more", where=where)
    # A scenario that is sized by samples has no duration of its own.
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


def _placed(error: UsageError, where: str) -> UsageError:
    error.where = where
    return error
