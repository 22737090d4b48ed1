"""Which `libcuda.so.1` a program finds: decided before it starts, because the loader reads it only then."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from gputax.errors import UsageError
from gputax.plan.cells import Setup
from gputax.plan.engines import parse_engine
from gputax.plan.environment import PROXY, EnvironmentName
from gputax.plan.micro import ENGINE

# The software device says so in its own name, directly and behind the proxy; none of its numbers can pass for a GPU's.
SOFTWARE_DEVICE_NAME = "gputax software device"


@dataclass(frozen=True)
class DriverChoice:
    """The requested driver; the environment finds the file."""

    device: str = "auto"
    libcuda: str = ""
    """Path of the user's library; empty for the device's own."""
    needed: bool = True
    """Whether the program calls the driver at all: an engine on the CPU does not."""


def driver_choice(setup: Setup) -> DriverChoice:
    """Return the driver that a worker with this setup needs."""
    return DriverChoice(setup.device, setup.libcuda, needed=parse_engine(setup.engine).name == ENGINE)


def share_a_worker(one: Setup, other: Setup) -> bool:
    """Whether one worker may load the other setup next: operations of one driver leave no state."""
    same = dataclasses.replace(one, workload=other.workload) == other
    return same and parse_engine(one.engine).name == ENGINE


def refuse_driver_contradictions(environment: str, setup: Setup) -> None:
    """Reject a layer or a library that the engine does not use, because it cannot be measured."""
    engine = parse_engine(setup.engine).name
    if engine == ENGINE:
        if setup.device == "cpu":
            raise UsageError(
                "the engine driver has no CPU device", next_step="use --device software, cuda or auto (the default)"
            )
        return
    if PROXY in EnvironmentName.parse(environment).layers:
        raise UsageError(
            f"the GPU proxy carries the CUDA driver API, which the engine {engine} does not use",
            where=f"environment {environment}",
            next_step="measure --workload micro, or run your own driver-API program with `gputax exec`",
        )
    if setup.device == "software" or setup.libcuda:
        option = "--libcuda" if setup.libcuda else "--device software"
        raise UsageError(
            f"{option} is for the workload micro: the engine {engine} does not call the driver itself",
            next_step="add --workload micro, or drop the option",
        )
