"""Load a model on the driver that this process finds; print, as JSON, the CPU seconds of its modules and first runs.

Compilers that the device starts are children of this process, so that their time is counted when they have ended.
"""

from __future__ import annotations

import json
import resource
import sys
from typing import Any

from gputax.api import own_model
from gputax.plan.own_model import OwnModel
from gputax.worker.engines.engine import EngineRequest
from gputax.worker.engines.tinygrad import TinygradEngine
from gputax.worker.samples import SampleArea
from gputax.worker.workloads import load_workload

LATER_RUNS = 3


def cpu_s() -> float:
    """Return the CPU time of this process and of all children that have ended."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


class FirstRun(TinygradEngine):
    """The engine, with its first run apart from what reading a capture takes."""

    first_run_s = 0.0
    load_s = 0.0

    def _captured_run(self, inputs: tuple[Any, ...], count: int) -> tuple[Any, bytes | None]:
        self._time_the_loads()
        jit, kept = super()._captured_run(inputs, count)
        if kept is None:
            jit(*inputs)  # captures
        before_s, loaded_s = cpu_s(), self.load_s
        jit(*inputs)
        self._package.device.synchronize()
        self.first_run_s = cpu_s() - before_s - (self.load_s - loaded_s)
        return jit, kept

    def _time_the_loads(self) -> None:
        """Tell loading a module apart from all else, whenever tinygrad does it."""
        from tinygrad.runtime.autogen import cuda

        load = cuda.cuModuleLoadData

        def timed(*arguments: Any) -> Any:
            before_s = cpu_s()
            result = load(*arguments)
            self.load_s += cpu_s() - before_s
            return result

        cuda.cuModuleLoadData = timed


def measured(workload: str, model: str = "") -> dict[str, Any]:
    """Load the workload, or a file with its inputs, run it, and return what each part took."""
    own = own_model(model) if model else OwnModel()
    request = EngineRequest(workload, {"copies": "included"}, "software", "fp32", 1, 1, own=own)
    engine = FirstRun(request)
    area = SampleArea(engine.adapt_inputs(load_workload(workload).synthetic_inputs(4, request.seed)), 1)
    engine.load_samples(area.arrays)
    started_s = cpu_s()
    for number in range(LATER_RUNS):
        engine.run(number, 1)
    later_run_s = (cpu_s() - started_s) / LATER_RUNS
    facts = engine.facts()
    engine.close()
    return {
        "load_s": engine.load_s,
        "first_run_s": engine.first_run_s,
        "later_run_s": later_run_s,
        "kernels": facts["captures"]["1"]["kernels"],
        "capture_from_cache": facts["kept_captures"] == [1],
    }


if __name__ == "__main__":
    print(json.dumps(measured(*sys.argv[1:])))
