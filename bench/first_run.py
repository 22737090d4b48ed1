"""Load a model on the driver that this process finds; print, as JSON, what its modules and first runs take.

Compilers that the device starts are children of this process, so that their time is counted when they have ended.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from gputax.api import own_model
from gputax.plan.own_model import OwnModel
from gputax.worker.engines.engine import EngineRequest
from gputax.worker.engines.tinygrad import TinygradEngine
from gputax.worker.samples import SampleArea
from gputax.worker.workloads import load_workload

LATER_RUNS = 3


@dataclass(frozen=True)
class Spent:
    """CPU time of this process and of all children that have ended, and time on the clock."""

    cpu_s: float = 0.0
    wall_s: float = 0.0

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.cpu_s - other.cpu_s, self.wall_s - other.wall_s)

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.cpu_s + other.cpu_s, self.wall_s + other.wall_s)


def spent() -> Spent:
    """Return what was spent until now."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return Spent(sum(each.ru_utime + each.ru_stime for each in used), time.monotonic())


def compile_time(load: Spent, first_run: Spent, later: Spent, later_runs: int) -> Spent:
    """Return what the first run costs beyond a later one: loading the modules, and compiling their kernels."""
    return load + first_run - Spent(later.cpu_s / later_runs, later.wall_s / later_runs)


class FirstRun(TinygradEngine):
    """The engine, with its first run apart from what reading a capture takes."""

    first_run = Spent()
    load = Spent()

    def _captured_run(self, inputs: tuple[Any, ...], count: int) -> tuple[Any, bytes | None]:
        self._time_the_loads()
        jit, kept = super()._captured_run(inputs, count)
        if kept is None:
            jit(*inputs)  # captures
        before, loaded = spent(), self.load
        jit(*inputs)
        self._package.device.synchronize()
        self.first_run = spent() - before - (self.load - loaded)
        return jit, kept

    def _time_the_loads(self) -> None:
        """Tell loading a module apart from all else, whenever tinygrad does it."""
        from tinygrad.runtime.autogen import cuda

        load = cuda.cuModuleLoadData

        def timed(*arguments: Any) -> Any:
            before = spent()
            result = load(*arguments)
            self.load += spent() - before
            return result

        cuda.cuModuleLoadData = timed


def measured(workload: str, model: str = "") -> dict[str, Any]:
    """Load the workload, or a file with its inputs, run it, and return what each part took."""
    own = own_model(model) if model else OwnModel()
    request = EngineRequest(workload, {"copies": "included"}, "software", "fp32", 1, 1, own=own)
    engine = FirstRun(request)
    area = SampleArea(engine.adapt_inputs(load_workload(workload).synthetic_inputs(4, request.seed)), 1)
    engine.load_samples(area.arrays)
    started = spent()
    for number in range(LATER_RUNS):
        engine.run(number, 1)
    later = spent() - started
    compiling = compile_time(engine.load, engine.first_run, later, LATER_RUNS)
    facts = engine.facts()
    engine.close()
    return {
        "compile": asdict(compiling),
        "load": asdict(engine.load),
        "first_run": asdict(engine.first_run),
        "kernels": facts["captures"]["1"]["kernels"],
        "capture_from_cache": facts["kept_captures"] == [1],
    }


if __name__ == "__main__":
    print(json.dumps(measured(*sys.argv[1:])))
