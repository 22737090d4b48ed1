"""One `measure` request: warm up, apply the load, collect samples, logs and telemetry."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NoReturn

from gputax.plan.load import Load
from gputax.plan.notices import Notice
from gputax.worker.loads import closed_loop, loadgen
from gputax.worker.preparation import Prepared
from gputax.worker.probes.disturbance import disturbances
from gputax.worker.probes.host import cpu_governors
from gputax.worker.probes.nvidia import NvmlAbsence, NvmlSampler
from gputax.worker.probes.telemetry import OwnTime, Telemetry
from gputax.worker.protocol import encode_array

Done = Callable[[], tuple[int, int]]
OnFailure = Callable[[BaseException], NoReturn]
ShowProgress = Callable[[Done], AbstractContextManager[None]]


def measure(
    prepared: Prepared,
    load: Load,
    on_failure: OnFailure,
    show_progress: ShowProgress,
    observe: closed_loop.Observe | None = None,
) -> dict[str, Any]:
    """Apply one load to the prepared engine and return all observations; `observe` is called for saturate's runs."""
    closed = load.scenario == "saturate"
    recording = closed_loop.recording_for(load) if closed else loadgen.recording_for(load)
    if load.scenario == "server" and prepared.engine.device != "cpu":
        _warm_every_batch_size(prepared, load.batch_size)
    sampler = NvmlSampler.open() if prepared.engine.device == "cuda" else NvmlAbsence("unused", "no GPU in use")
    telemetry = Telemetry(nvml=None if isinstance(sampler, NvmlAbsence) else sampler)
    telemetry.start()
    started_ns = time.perf_counter_ns()
    logs: dict[str, str] = {}
    notices: list[Notice] = []
    if prepared.engine.device == "cuda" and isinstance(sampler, NvmlAbsence):
        notices.append(Notice("no-gpu-telemetry", f"clocks and foreign processes were not monitored: {sampler.why}"))
    with show_progress(lambda: (recording.samples_done, recording.samples_total)):
        if closed:
            try:
                closed_loop.saturate(prepared.engine, prepared.area, load, recording, observe)
            except BaseException as error:
                on_failure(error)
            columns = recording.to_columns()
        else:
            outcome = loadgen.run_loadgen(prepared.engine, prepared.area, load, recording, on_failure)
            columns, logs = outcome.columns, outcome.logs
            notices += outcome.notices
    elapsed_s = (time.perf_counter_ns() - started_ns) / 1e9
    series = telemetry.stop()
    if isinstance(sampler, NvmlSampler):
        sampler.close()
    return {
        "columns": {name: encode_array(values) for name, values in columns.items()},
        "logs": logs,
        "telemetry": series,
        "notices": [notice.to_dict() for notice in [*notices, *disturbances(series, governors=cpu_governors())]],
        "elapsed_s": elapsed_s,
        "rows": recording.count,
    }


def measure_slot(prepared: Prepared, batch: int, runs: range, dropped: int) -> dict[str, Any]:
    """Apply one half of a pair: no telemetry, no progress, only the runs and our own time in the counted ones."""
    own = OwnTime()
    try:
        columns = closed_loop.slot(prepared.engine, prepared.area, batch, runs, dropped, own).to_columns()
    finally:
        own.close()
    return {
        "columns": {name: encode_array(columns[name]) for name in ("start_ns", "end_ns")},
        "run_wait_ns": own.run_wait_ns,
        "cpu_ns": own.cpu_ns,
    }


def _warm_every_batch_size(prepared: Prepared, largest: int) -> None:
    """Run each batch size once: cuDNN and TensorRT choose kernels per shape at its first use."""
    for count in range(1, largest + 1):
        prepared.engine.run(0, count)
