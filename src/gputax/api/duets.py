"""Duets: two environments measured in alternation, and the resolution of this machine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputax.api.variables import variables_named, variables_set
from gputax.errors import UsageError
from gputax.plan.cells import (
    MULTI_STREAM_SAMPLES_PER_QUERY,
    Setup,
    StrPath,
    absolute,
    device_named,
    precision_named,
    scenario_named,
)
from gputax.plan.options import VARIABLE_OPTIONS, EnvironmentOptions
from gputax.plan.own_model import OwnModel, refuse_batch_of_own, refuse_own_model
from gputax.plan.own_program import ENGINE as PROGRAM_ENGINE
from gputax.plan.own_program import OwnProgram
from gputax.plan.servers import SCENARIOS as SERVER_SCENARIOS
from gputax.plan.servers import is_server, refuse_server_contradictions, server_label, server_workload

if TYPE_CHECKING:
    from gputax.measure.duet.pairs import OnPair
    from gputax.measure.duet.sides import DuetRequest
    from gputax.results.documents.comparison import Comparison, Resolution

Say = Callable[[str], None]


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
    weights: StrPath = "",
    libcuda: StrPath = "",
    own: OwnModel | None = None,
    program: OwnProgram | None = None,
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
    from gputax.measure.duet.sides import DuetRequest, SideSpec
    from gputax.places import refuse_unknown
    from gputax.plan.budgets import unused_scopes
    from gputax.plan.driver import chosen_engine, refuse_driver_contradictions
    from gputax.plan.engines import refuse_unused_weights, waiting_passively
    from gputax.plan.metrics import METRICS
    from gputax.plan.suites import wanted_budgets

    for name in (a, b):
        refuse_unknown(name)
    device, precision, scenario = device_named(device), precision_named(precision), scenario_named(scenario)
    own, program = own or OwnModel(), program or OwnProgram()
    if is_server(engine) or is_server(engine_b):
        _refuse_unlike_servers(engine, engine_b)
        refuse_server_contradictions(
            engine, (a, b), weights=weights, libcuda=libcuda, threads=threads, model=own.file,
            precision=precision.removeprefix("fp32"), device=device.removeprefix("auto"),
        )  # fmt: skip
        workload, threads = server_workload(engine, seed), 1
        if scenario not in SERVER_SCENARIOS:
            raise UsageError(
                f"a server has no scenario {scenario}", next_step=f"use --scenario {' or '.join(SERVER_SCENARIOS)}"
            )
    if own.file or program.words:
        workload = program.name if program.words else own.name
    workloads = _duet_workloads((workload,) if isinstance(workload, str) else tuple(workload), scenario)
    if program.words:
        engine, scenario, batch = PROGRAM_ENGINE, "single-stream", 1
    else:
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
            weights=absolute(weights),
            max_batch=max(batch, 1),
            sample_count=max(32, batch),
            seed=seed,
            libcuda=absolute(libcuda),
            own=own,
            program=program,
        )
        refuse_own_model(own, engine=engine, weights=str(weights), precision=precision)
        refuse_batch_of_own(own, (batch,))
        refuse_driver_contradictions(environment, setup)
        refuse_unused_weights(setup.weights, setup.engine)
        return SideSpec(label, environment, setup, (options or EnvironmentOptions()).changed(changes))

    labels = (a, b)
    if is_server(engine) and a == b:
        labels = (server_label(engine), server_label(engine_b or engine))
    return DuetRequest(
        side(labels[0], a, engine, for_a),
        side(labels[1] if labels[1] != labels[0] else f"{labels[1]} (B)", b, engine_b or engine, for_b),
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
        notices=tuple(unused_scopes(wanted, [(a, b)])),
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


def gate(
    request: DuetRequest, *, say: Say = lambda text: None, on_pair: OnPair = lambda rounds, elapsed_s: None
) -> Resolution | None:
    """Measure A against A for a part of the time, and refuse a duet whose budget lies below that noise.

    Returns the noise that was found; None if no budget is a percentage, so that there is nothing to compare it with.
    """
    from gputax.measure.duet.execution import machine_resolution
    from gputax.measure.duet.gate import gate_s, gated_percent, refuse_below_noise

    budget_percent = gated_percent(request)
    if budget_percent is None:
        return None
    seconds = gate_s(request.max_time_s)
    say(f"gate: A against A for {seconds:.0f} s, for a budget of {budget_percent:g} %")
    found = machine_resolution(request.a, seconds, say, on_pair, scenario=request.scenario, batch=request.batch)
    refuse_below_noise(found, budget_percent, request.max_time_s)
    return found


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
    from gputax.plan.workloads import MICRO, MICRO_SCENARIOS, expanded, is_micro, workload_facts

    workloads = expanded(workloads)
    for workload in workloads:
        workload_facts(workload)
    operations = [is_micro(workload) for workload in workloads]
    if len(workloads) > 1 and not all(operations):
        raise UsageError("a duet takes one model, or operations of micro", next_step="run one duet per model")
    if any(operations) and scenario not in MICRO_SCENARIOS:
        raise UsageError(
            f"{MICRO} has no scenario {scenario}", next_step=f"use --scenario {' or '.join(MICRO_SCENARIOS)}"
        )
    return workloads


def _refuse_unlike_servers(engine: str, engine_b: str) -> None:
    """Refuse a server beside something else, and two servers that are asked different things."""
    if not is_server(engine) or (engine_b and not is_server(engine_b)):
        raise UsageError(
            "a server is compared with a server", next_step="--engine openai:URL_A --engine-b openai:URL_B"
        )
    if engine_b and server_workload(engine, 0) != server_workload(engine_b, 0):
        raise UsageError(
            "the two servers are asked different things",
            next_step="give --engine and --engine-b the same options; only address and model may differ",
        )


def _above_zero(percent: float) -> float:
    if not 0.0 < percent < math.inf:
        raise UsageError(f"--width {percent!r} is not a percentage above zero", next_step="e.g. --width 1%")
    return percent
