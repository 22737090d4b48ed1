"""Apply load with the real MLPerf LoadGen: settings field by field, logs in our own directory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from gputax.errors import CellError, PreflightError
from gputax.plan.cells import MULTI_STREAM_SAMPLES_PER_QUERY, QSL_SEED, SAMPLE_INDEX_SEED, SCHEDULE_SEED, Load
from gputax.plan.notices import Notice
from gputax.worker.engines.engine import Engine, Generates
from gputax.worker.loads import sut
from gputax.worker.loads.accuracy_sut import accuracy_callbacks
from gputax.worker.loads.arrivals import poisson_offsets_ns
from gputax.worker.loads.recording import Int64Array, Recording, quiet_interpreter
from gputax.worker.loads.token_sut import token_callbacks, token_settings
from gputax.worker.loads.token_times import TokenTimes, token_times_for
from gputax.worker.samples import SampleArea

LOG_NAMES = ("mlperf_log_summary.txt", "mlperf_log_detail.txt")
ACCURACY_LOG = "mlperf_log_accuracy.json"
SCENARIO_NAMES = {
    "offline": "Offline",
    "server": "Server",
    "single-stream": "SingleStream",
    "multi-stream": "MultiStream",
}
OnFailure = Callable[[BaseException], NoReturn]


@dataclass(frozen=True)
class LoadGenOutcome:
    """The output of one LoadGen run."""

    columns: dict[str, Int64Array]
    logs: dict[str, str]
    notices: list[Notice] = field(default_factory=list)


def import_loadgen() -> Any:
    """Import the extension, or raise with the supported machines."""
    try:
        import mlperf_loadgen
    except ImportError as error:
        raise PreflightError(
            f"MLPerf LoadGen cannot be imported: {error}",
            where="package mlcommons-loadgen",
            next_step="its wheels exist for Linux x86_64 (glibc 2.27 or newer), CPython 3.9 to 3.13: use such a "
            "Python, or build it from source with g++ and pybind11; the scenario `saturate` works without it",
        ) from error
    return mlperf_loadgen


def loadgen_settings(loadgen: Any, load: Load) -> Any:
    """Set every field ourselves: a second `FromConfig` in one process silently loses the built-in defaults."""
    settings = loadgen.TestSettings()
    settings.scenario = getattr(loadgen.TestScenario, SCENARIO_NAMES[load.scenario])
    settings.mode = loadgen.TestMode.AccuracyOnly if load.accuracy_samples else loadgen.TestMode.PerformanceOnly
    settings.min_duration_ms = max(1, round(load.min_duration_s * 1000))
    settings.max_duration_ms = 0
    settings.min_query_count = load.min_queries
    settings.max_query_count = 0
    settings.qsl_rng_seed = QSL_SEED
    settings.sample_index_rng_seed = (SAMPLE_INDEX_SEED + load.seed_offset) % 2**64
    settings.schedule_rng_seed = (SCHEDULE_SEED + load.seed_offset) % 2**64
    settings.single_stream_expected_latency_ns = load.expected_latency_ns
    settings.single_stream_target_latency_percentile = 0.90
    settings.multi_stream_expected_latency_ns = load.expected_latency_ns
    settings.multi_stream_target_latency_percentile = load.percentile
    settings.multi_stream_samples_per_query = MULTI_STREAM_SAMPLES_PER_QUERY
    settings.server_target_qps = load.target_qps
    settings.server_target_latency_ns = load.bound_ns
    settings.server_target_latency_percentile = load.percentile
    settings.server_coalesce_queries = False
    settings.server_num_issue_query_threads = 0  # Python cannot register such threads: any other value hangs
    settings.offline_expected_qps = load.expected_qps
    return settings


def recording_for(load: Load) -> Recording:
    """Return a recording for every query that LoadGen generates; only a server's random draw can exceed it."""
    match load.scenario:
        case "offline":
            samples = max(load.min_queries, int(1.1 * load.min_duration_s * load.expected_qps) + 1)
            return Recording(sut.OFFLINE_COLUMNS, samples // load.batch_size + 64, samples)
        case "server":
            queries = max(load.min_queries, int(load.min_duration_s * load.target_qps))
            return Recording(sut.SERVER_COLUMNS, int(queries * 1.2) + 1024, queries)
    queries = max(load.min_queries, int(load.min_duration_s * 1e9 / load.expected_latency_ns))
    per_query = MULTI_STREAM_SAMPLES_PER_QUERY if load.scenario == "multi-stream" else 1
    return Recording(sut.STREAM_COLUMNS, queries * 2 + 64, queries * per_query)


def run_loadgen(
    engine: Engine, area: SampleArea, load: Load, recording: Recording, on_failure: OnFailure, workload: str = ""
) -> LoadGenOutcome:
    """Run one LoadGen test; `on_failure` must not return, because LoadGen cannot be aborted from Python.

    In accuracy mode the workload decides what an answer is.
    """
    loadgen = import_loadgen()
    library = sut.SampleLibrary(area, engine)
    system = sut.System(loadgen, engine, area, library, load, recording, on_failure)
    times = token_times_for(engine)
    settings = loadgen_settings(loadgen, load)
    if load.accuracy_samples:
        callbacks = accuracy_callbacks(system, workload)
    elif isinstance(engine, Generates) and times is not None:
        callbacks = token_callbacks(system, engine, times)
        token_settings(settings, ttft_ns=load.bound_ns, tpot_ns=load.tpot_bound_ns)
    else:
        callbacks = sut.callbacks_for(system)
    with tempfile.TemporaryDirectory(prefix="gputax-loadgen-") as log_dir:
        log_settings = loadgen.LogSettings()
        log_settings.enable_trace = False  # cost a null SUT 27 to 49 % of its rate
        log_settings.log_output.outdir = log_dir  # a missing directory would abort the process at exit
        log_settings.log_output.copy_summary_to_stdout = False
        handle = loadgen.ConstructFastSUT(callbacks.issue, callbacks.flush)
        count = load.accuracy_samples or area.count
        qsl = loadgen.ConstructQSL(count, count, library.load, library.unload)
        try:
            with quiet_interpreter(), callbacks.serving():
                # "" for the audit file: one in the working directory would silently override the settings.
                loadgen.StartTestWithLogSettings(
                    qsl=qsl, sut=handle, test_settings=settings, log_settings=log_settings, audit_config_filename=""
                )
        finally:
            loadgen.DestroyQSL(qsl)
            loadgen.DestroyFastSUT(handle)
        names = (*LOG_NAMES, ACCURACY_LOG) if load.accuracy_samples else LOG_NAMES
        logs = {name: _read(Path(log_dir) / name) for name in names}
    if recording.count == 0 or not logs[LOG_NAMES[0]]:
        raise CellError(
            "LoadGen issued no query", where=f"scenario {load.scenario}", next_step="see the worker's stderr"
        )
    return _outcome(load, recording, times, logs)


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _outcome(load: Load, recording: Recording, times: TokenTimes | None, logs: dict[str, str]) -> LoadGenOutcome:
    columns = recording.to_columns()
    if times is not None:
        samples = columns.get("samples")
        columns |= times.to_columns(np.ones_like(columns["end_ns"]) if samples is None else samples)
    if load.scenario != "server":
        return LoadGenOutcome(columns, logs)
    seed = (SCHEDULE_SEED + load.seed_offset) % 2**64
    scheduled = scheduled_times_ns(columns["issued_ns"], seed, load.target_qps)
    if scheduled is None:
        text = "arrival times could not be matched with LoadGen's schedule; latency counts from the issue instead"
        return LoadGenOutcome(
            {"scheduled_ns": columns["issued_ns"], **columns}, logs, [Notice("schedule-unknown", text, None)]
        )
    return LoadGenOutcome({"scheduled_ns": scheduled, **columns}, logs)


# Issue times match the computed schedule up to the thread's delay; a query can never be early by more
# than clock reading noise, so anything beyond this means the two do not belong together.
EARLY_TOLERANCE_NS = 1_000_000


def scheduled_times_ns(issued_ns: Int64Array, seed: int, rate_per_s: float) -> Int64Array | None:
    """Return each query's scheduled time on the clock of `issued_ns`, or None if the schedule does not match."""
    if len(issued_ns) == 0:
        return issued_ns
    offsets = poisson_offsets_ns(seed, rate_per_s, len(issued_ns))
    lateness_ns = issued_ns - offsets
    start_ns = lateness_ns[0]  # the first query is scheduled at the start itself and issued microseconds later
    if lateness_ns.min() < start_ns - EARLY_TOLERANCE_NS:
        return None
    return offsets + min(int(start_ns), int(lateness_ns.min()))
