"""The worker process: answer requests on stdin until `close` or the end of the pipe."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from gputax import __version__
from gputax.errors import CellError, EngineError, GputaxError, WorkerError
from gputax.plan.cells import Load, Setup
from gputax.plan.notices import Notice
from gputax.plan.servers import DEVICE as SERVER
from gputax.worker.engines.engine import RunsAProgram, TimesItsCalls
from gputax.worker.loads import closed_loop, loadgen, requests
from gputax.worker.loads.closed_loop import Observe
from gputax.worker.loads.recording import Recording
from gputax.worker.loads.requests import AsksAServer, RequestRecording
from gputax.worker.loads.token_times import token_times_for
from gputax.worker.preparation import Prepared, prepare
from gputax.worker.probes.disturbance import disturbances
from gputax.worker.probes.host import cpu_governors
from gputax.worker.probes.limits import throttling_levels
from gputax.worker.probes.nvidia import NvmlAbsence, NvmlSampler
from gputax.worker.probes.processes import ProgramTime, Use, program_facts
from gputax.worker.probes.telemetry import OwnTime, Telemetry
from gputax.worker.protocol import PROTOCOL_VERSION, decode_message, encode_array, encode_message
from gputax.worker.scratch import remove_scratch
from gputax.worker.tenant.info import PORT_VARIABLE, tenant_labels

if TYPE_CHECKING:
    from gputax.worker.tenant.metrics import TenantMetrics

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
    engine, closed = prepared.engine, load.scenario == "saturate"
    recording: Recording | RequestRecording
    if isinstance(engine, AsksAServer):
        recording = requests.recording_for(load)
    else:
        recording = closed_loop.recording_for(load) if closed else loadgen.recording_for(load)
    if load.scenario == "server" and prepared.engine.device not in ("cpu", SERVER):
        _warm_every_batch_size(prepared, load.batch_size)
    sampler = NvmlSampler.open() if prepared.engine.device == "cuda" else NvmlAbsence("unused", "no GPU in use")
    program = prepared.engine.used if isinstance(prepared.engine, RunsAProgram) else Use
    telemetry = Telemetry(nvml=None if isinstance(sampler, NvmlAbsence) else sampler, program=program)
    telemetry.start()
    started_ns = time.perf_counter_ns()
    logs: dict[str, str] = {}
    notices: list[Notice] = []
    if prepared.engine.device == "cuda" and isinstance(sampler, NvmlAbsence):
        notices.append(Notice("no-gpu-telemetry", f"clocks and foreign processes were not monitored: {sampler.why}"))
    with show_progress(lambda: (recording.samples_done, recording.samples_total)):
        if isinstance(engine, AsksAServer) and isinstance(recording, RequestRecording):
            try:
                requests.apply(engine, load, recording, observe)
            except BaseException as error:
                on_failure(error)
            columns = recording.to_columns(streams=engine.streams)
            notices += requests.answer_notices(engine, recording.answers)
            logs = requests.failure_log(engine, recording.answers)
        elif isinstance(recording, RequestRecording):
            raise WorkerError("a recording of requests without a server", where="worker")
        elif closed:
            times = token_times_for(prepared.engine)
            try:
                closed_loop.saturate(prepared.engine, prepared.area, load, recording, observe, times)
            except BaseException as error:
                on_failure(error)
            columns = recording.to_columns()
            if times is not None:
                columns |= times.to_columns(columns["samples"])
        else:
            workload = str(prepared.facts["workload"])
            outcome = loadgen.run_loadgen(prepared.engine, prepared.area, load, recording, on_failure, workload)
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


def measure_slot(
    prepared: Prepared, batch: int, runs: range, dropped: int, throttling: Sequence[Path] = ()
) -> dict[str, Any]:
    """Apply one half of a pair: no telemetry, no progress, only the runs and our own time in the counted ones."""
    engine = prepared.engine
    own = ProgramTime(engine.used) if isinstance(engine, RunsAProgram) else OwnTime(throttling=throttling)
    times = token_times_for(engine)
    try:
        if isinstance(engine, AsksAServer):
            columns = requests.slot(engine, batch, runs, dropped, own).to_columns(streams=engine.streams)
        else:
            columns = closed_loop.slot(engine, prepared.area, batch, runs, dropped, own, times).to_columns()
    finally:
        own.close()
    sent = {name: values for name, values in columns.items() if name != "samples"}
    if times is not None:
        sent |= {"samples": columns["samples"], **times.to_columns(columns["samples"])}
    return {
        "columns": {name: encode_array(values) for name, values in sent.items()},
        "dropped": 0 if isinstance(engine, AsksAServer) else dropped,
        "run_wait_ns": own.run_wait_ns,
        "cpu_ns": own.cpu_ns,
        "counters": own.counters,
        "throttled_ns": own.throttled_ns,
        "steal_ns": own.steal_ns,
        "major_faults": own.major_faults,
    }


def _warm_every_batch_size(prepared: Prepared, largest: int) -> None:
    """Run each batch size once: cuDNN and TensorRT choose kernels per shape at its first use."""
    for count in range(1, largest + 1):
        prepared.engine.run(0, count)


PROGRESS_INTERVAL_S = 0.5


class Pipes:
    """Both ends of the protocol; stdout is reserved for it."""

    def __init__(self) -> None:
        # Libraries may print to descriptor 1; from here on that is stderr, and only we hold the pipe.
        self._out = os.dup(1)
        os.dup2(2, 1)
        self._lock = threading.Lock()
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.busy = False
        threading.Thread(target=self._read, name="requests", daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin.buffer:
            self._requests.put(line)
        if self.busy:
            remove_scratch()
            os._exit(0)  # the coordinator is gone and cannot read the result, so stop using the device now
        self._requests.put(None)

    def next_request(self) -> bytes | None:
        """Wait for the next line; None at the end of the pipe."""
        return self._requests.get()

    def send(self, message: dict[str, Any]) -> None:
        """Write one message whole."""
        data = memoryview(encode_message(message))
        with self._lock:
            while data:
                data = data[os.write(self._out, data) :]


class Progress:
    """Sends the number of samples done twice a second while a load runs."""

    def __init__(self, pipes: Pipes, request_id: int, done: Callable[[], tuple[int, int]]) -> None:
        self._pipes, self._id, self._done = pipes, request_id, done
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._report, name="progress", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _report(self) -> None:
        while not self._stop.wait(PROGRESS_INTERVAL_S):
            done, total = self._done()
            self._pipes.send({"id": self._id, "event": {"done": done, "total": total}})


class Worker:
    """Keeps the prepared engine between requests."""

    def __init__(self, pipes: Pipes) -> None:
        self._pipes = pipes
        self._prepared: Prepared | None = None
        self._throttling: tuple[Path, ...] = ()
        self._metrics: TenantMetrics | None = None
        self._no_metrics: GputaxError | None = None
        try:
            self._metrics = _served_metrics()
        except GputaxError as error:
            self._no_metrics = error  # reported by `prepare`: a user who requested metrics must know

    def serve(self) -> None:
        """Answer requests until the end; failures are answered too."""
        while (line := self._pipes.next_request()) is not None:
            request_id = -1
            self._pipes.busy = True
            try:
                request = decode_message(line)
                request_id = int(request.get("id", -1))
                result = self._answer(request_id, request)
            except GputaxError as error:
                self._pipes.send({"id": request_id, "error": error.to_dict()})
            except Exception as error:
                traceback.print_exc()
                self._pipes.send({"id": request_id, "error": _unforeseen(error).to_dict()})
            else:
                self._pipes.send({"id": request_id, "result": result})
                if request.get("op") == "close":
                    return
            finally:
                self._pipes.busy = False

    def _answer(self, request_id: int, request: dict[str, Any]) -> dict[str, Any]:
        match request.get("op"):
            case "describe" if request.get("about") == "driver":
                from gputax.worker.probes.driver_library import driver_facts

                answers = self._answers_checked()  # first: what it may ask of the driver is then in the count
                return {"driver": {**driver_facts(), **self._program_facts()}, "answers": answers}
            case "describe" if request.get("about") == "isolation":
                from gputax.worker.isolation import probe

                return {"isolation": probe(request)}
            case "describe" if request.get("about") == "mode":
                from gputax.worker.probes.mode import mode_facts

                return mode_facts()
            case "describe" if request.get("about") == "selftest":
                from gputax.worker.selftest.probe import probe as ask

                return ask(request, lambda text: self._pipes.send({"id": request_id, "event": {"text": text}}))
            case "describe" if request.get("about") == "resources":
                return {"resources": self._resources()}
            case "describe" if request.get("about") == "clock":
                return {"monotonic_ns": time.perf_counter_ns()}
            case "describe":
                from gputax.worker.probes.facts import describe

                facts = describe(
                    with_engines=bool(request.get("with_engines", False)), listen_s=float(request.get("listen_s", 0.0))
                )
                return {"protocol": PROTOCOL_VERSION, "version": __version__, "pid": os.getpid(), **facts}
            case "file":
                from gputax.worker.received import answer_file

                return answer_file(request)
            case "prepare":
                return self._prepare(request_id, Setup.from_dict(request["setup"]))
            case "measure" if "slot" in request:
                return self._slot(request["slot"])
            case "measure":
                return self._measure(request_id, Load.from_dict(request["load"]))
            case "close":
                self._release()
                return {}
        raise WorkerError(f"unknown request {request.get('op')!r}", where="worker protocol")

    def _program_facts(self) -> dict[str, Any]:
        """Return what the program that is measured has loaded and opened; empty for other engines."""
        engine = self._prepared.engine if self._prepared else None
        return {"program": program_facts(engine.pids)} if isinstance(engine, RunsAProgram) else {}

    def _answers_checked(self) -> dict[str, Any]:
        """Return how each batch size that has run so far was checked; empty for an engine that has no such check."""
        return dict(self._prepared.engine.facts().get("answers", {})) if self._prepared else {}

    def _resources(self) -> dict[str, Any]:
        """Return what this process got from its host, and how long calls around a kernel take, if its engine knows."""
        from gputax.worker.probes.resources import resource_facts

        engine = self._prepared.engine if self._prepared else None
        return {**resource_facts(), **(engine.call_times() if isinstance(engine, TimesItsCalls) else {})}

    def _prepare(self, request_id: int, setup: Setup) -> dict[str, Any]:
        if self._no_metrics is not None:
            raise self._no_metrics
        self._release()
        # Found once: parsing the mounts takes longer than a short slot.
        self._throttling = throttling_levels()
        self._prepared = prepare(setup, lambda text: self._pipes.send({"id": request_id, "event": {"text": text}}))
        if self._metrics is not None:
            self._metrics.introduce(tenant_labels(setup, self._prepared.facts))
            self._metrics.ready = True
        return self._prepared.facts

    def _slot(self, slot: dict[str, Any]) -> dict[str, Any]:
        try:
            first, count = int(slot["first_run"]), int(slot["runs"])
            return measure_slot(
                self._ready(),
                int(slot["batch"]),
                range(first, first + count),
                int(slot.get("dropped", 0)),
                self._throttling,
            )
        except GputaxError:
            raise
        except Exception as error:
            raise _engine_failure(error) from error

    def _ready(self) -> Prepared:
        if self._prepared is None:
            raise WorkerError("measure before prepare", where="worker protocol")
        return self._prepared

    def _measure(self, request_id: int, load: Load) -> dict[str, Any]:
        prepared = self._ready()

        def on_failure(error: BaseException) -> NoReturn:
            # LoadGen cannot be aborted and turns exceptions into exit code 134, so: answer, then end the process.
            traceback.print_exception(error)
            if self._metrics is not None:
                self._metrics.tally.failed()
            failure = error if isinstance(error, GputaxError) else _engine_failure(error)
            self._pipes.send({"id": request_id, "error": {**failure.to_dict(), "worker_ended": True}})
            remove_scratch()
            os._exit(0)

        return measure(
            prepared, load, on_failure, lambda done: Progress(self._pipes, request_id, done), self._observer(load)
        )

    def _observer(self, load: Load) -> Observe | None:
        """Return the callback for the metrics: it counts every run of saturate, including the pilot's."""
        if self._metrics is None:
            return None
        done, batch = self._metrics.tally.done, load.batch_size
        return lambda latency_ns: done(latency_ns, batch)

    def _release(self) -> None:
        if self._prepared is not None:
            self._prepared.engine.close()
            self._prepared = None
        if self._metrics is not None:
            self._metrics.ready = False


def _served_metrics() -> TenantMetrics | None:
    """Start serving metrics if the environment variables request it."""
    if not os.environ.get(PORT_VARIABLE):
        return None
    # Imported here: a worker without metrics needs neither the library nor its 160 ms.
    from gputax.worker.tenant.metrics import TenantMetrics, server_from_variables
    from gputax.worker.tenant.tally import Tally

    metrics = TenantMetrics(Tally())
    server_from_variables(metrics)
    return metrics


def _engine_failure(error: BaseException) -> EngineError:
    return EngineError(f"{type(error).__name__}: {error}", where="engine", next_step="see the worker's stderr")


def _unforeseen(error: Exception) -> CellError:
    return CellError(f"{type(error).__name__}: {error}", where="worker", next_step="run again with --debug")


def main() -> None:
    """Run the worker on this process's stdin and stdout."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the coordinator, which then stops us
    try:
        Worker(Pipes()).serve()
    finally:
        remove_scratch()
    sys.stderr.flush()
    # LoadGen, ONNX Runtime and CUDA have their own threads that may outlive main and abort at exit.
    os._exit(0)
