"""Which `libcuda.so.1` a program finds: decided before it starts, because the loader reads it only then."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from gputax.errors import UsageError
from gputax.plan.cells import Setup
from gputax.plan.engines import DRIVER_MODEL_ENGINE, ENGINES, no_decoder, parse_engine
from gputax.plan.environment import PROXY, EnvironmentName
from gputax.plan.language_models import is_language_model
from gputax.plan.own_model import is_module
from gputax.plan.workloads import ENGINE, engine_for, is_micro

# The software device says so in its own name, directly and behind the proxy; none of its numbers can pass for a GPU's.
SOFTWARE_DEVICE_NAME = "gputax software device"
# With `auto` an engine on the CUDA runtime may choose the CPU.
NAMED_DEVICES = ("cuda", "software")


@dataclass(frozen=True)
class DriverChoice:
    """The requested driver; the environment finds the file."""

    device: str = "auto"
    libcuda: str = ""
    """Path of the user's library; empty for the device's own."""
    needed: bool = True
    """Whether the program calls the driver at all: an engine on the CPU does not."""
    runtime: bool = False
    """Whether it does so through the CUDA runtime, which our own libraries take only if they are asked to."""


def chosen_engine(
    workload: str, given: str, environments: Iterable[str] = (), device: str = "auto", libcuda: str = ""
) -> str:
    """Return the given engine, else the default; a model that must go through the driver gets the engine that does."""
    if given or is_micro(workload) or is_language_model(workload) or is_module(workload):
        return engine_for(workload, given)
    behind_proxy = any(PROXY in EnvironmentName.parse(name).layers for name in environments)
    return DRIVER_MODEL_ENGINE if behind_proxy or device == "software" or libcuda else engine_for(workload, given)


def engine_note(engine: str, given: str) -> str:
    """Return what to print where the engine was chosen because of the driver; nothing otherwise."""
    if given or parse_engine(engine).name != DRIVER_MODEL_ENGINE:
        return ""
    return (
        f"engine {DRIVER_MODEL_ENGINE} chosen: it reaches the GPU proxy, the software device and --libcuda through the "
        "CUDA driver API alone"
    )


def driver_choice(setup: Setup) -> DriverChoice:
    """Return the driver that a worker with this setup needs; a program needs the one that was asked for, if any was."""
    kind = ENGINES[parse_engine(setup.engine).name]
    chosen = setup.device in NAMED_DEVICES or bool(setup.libcuda)
    on_runtime = kind.uses_runtime and chosen and not setup.program.words
    needed = kind.uses_driver or on_runtime or (chosen and bool(setup.program.words))
    return DriverChoice(setup.device, setup.libcuda, needed=needed, runtime=on_runtime)


def share_a_worker(one: Setup, other: Setup) -> bool:
    """Whether one worker may load the other setup next: operations of one driver leave no state."""
    same = dataclasses.replace(one, workload=other.workload) == other
    return same and parse_engine(one.engine).name == ENGINE


def refuse_driver_contradictions(environment: str, setup: Setup) -> None:
    """Reject a layer or a library that the engine does not use, because it cannot be measured."""
    engine = parse_engine(setup.engine).name
    if is_language_model(setup.workload) and not ENGINES[engine].generates:
        raise no_decoder(engine)
    if setup.program.words:
        if setup.device == "cpu":
            raise UsageError("a program of yours chooses its device itself", next_step="drop --device cpu")
        return
    behind_proxy = PROXY in EnvironmentName.parse(environment).layers
    if ENGINES[engine].uses_driver:
        if setup.device == "cpu":
            raise UsageError(
                f"the engine {engine} has no CPU device", next_step="use --device software, cuda or auto (the default)"
            )
        return
    if ENGINES[engine].uses_runtime:
        _refuse_the_cpu(environment if behind_proxy else "", setup)
        return
    if behind_proxy:
        raise UsageError(
            f"the GPU proxy carries the CUDA driver API, which the engine {engine} does not use",
            where=f"environment {environment}",
            next_step=f"use --engine {DRIVER_MODEL_ENGINE}, which does; or measure --workload micro, or run your own "
            "driver-API program with `gputax exec`",
        )
    if setup.device == "software" or setup.libcuda:
        option = "--libcuda" if setup.libcuda else "--device software"
        raise UsageError(
            f"{option} is for the engines that call the driver: the engine {engine} does not call the driver itself",
            next_step=f"add --engine {DRIVER_MODEL_ENGINE} or --workload micro, or drop the option",
        )


def _refuse_the_cpu(environment: str, setup: Setup) -> None:
    """Reject an engine on the CUDA runtime that may run on the CPU although a proxy or a driver library was chosen."""
    engine = parse_engine(setup.engine).name
    if environment and not driver_choice(setup).needed:
        raise UsageError(
            f"with --device {setup.device} the engine {engine} may run on the CPU, of which the GPU proxy sees nothing",
            where=f"environment {environment}",
            next_step="name the device: --device cuda, or --device software --soft-kernels null; "
            f"or use --engine {DRIVER_MODEL_ENGINE}",
        )
    if setup.libcuda and setup.device == "cpu":
        raise UsageError("--libcuda and --device cpu contradict each other", next_step="drop one of them")
