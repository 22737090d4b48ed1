"""The self-test: a driver directly and behind the GPU proxy, compared answer by answer, in one directory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputax import __version__
from gputax.errors import GputaxError, Interrupted, UsageError, unknown_name
from gputax.plan.cells import StrPath, absolute, device_named
from gputax.plan.driver import SOFTWARE_DEVICE_NAME, DriverChoice
from gputax.plan.engines import ENGINES

if TYPE_CHECKING:
    from gputax.results.documents.comparison import Comparison
    from gputax.results.documents.selftest import DuetSummary, SelftestRecord
    from gputax.selftest.execution import Findings
    from gputax.selftest.plan import Request

Say = Callable[[str], None]
# Each with its engine; empty for the one that needs the driver alone.
HEADLINE_DUETS = (("micro:operation", ""), ("resnet50", ""))
RUNTIME_DUETS = tuple(("resnet50", name) for name, kind in ENGINES.items() if kind.uses_runtime)
MEDIAN = "latency_p50"
KERNELS_VARIABLE = "GPUTAX_SOFT_KERNELS"
# As the README's duet: otherwise an operation of the software device is all driver, and its overhead says nothing.
SOFTWARE_OPERATION: dict[str, Any] = {"soft_kernel_us": 125, "soft_copy_gbps": 4.5, "proxy_spin": "always"}


def selftest(
    device: str = "cuda",
    *,
    libcuda: StrPath = "",
    cudart: StrPath = "",
    quick: bool = False,
    only: Sequence[str] = (),
    models: Sequence[str] = (),
    duet_s: float = 60.0,
    out: StrPath | None = None,
    say: Say = lambda text: None,
    on_step: Say = lambda text: None,
    command: str = "",
) -> SelftestRecord:
    """Compare everything that can be compared, and write one directory; `quick` leaves out models and duets."""
    from gputax.environments.driver import RUNTIME_VARIABLE
    from gputax.results.reading import SELFTEST
    from gputax.results.store import ResultDirectory
    from gputax.selftest.execution import Selftest
    from gputax.selftest.plan import MODELS, Request, refuse_unknown_groups

    device = device_named(device, ("cuda", "software"))
    refuse_unknown_groups(only)
    for model in models:
        if model not in MODELS:
            raise unknown_name("model", model, MODELS)
    null_kernels = os.environ.get(KERNELS_VARIABLE) == "null"
    if null_kernels and device != "software":
        raise UsageError(
            "null kernels compute nothing that could be compared with a GPU",
            next_step="drop --soft-kernels, or add --device software to compare launches alone",
        )
    asked_for = os.environ.get(RUNTIME_VARIABLE) == "1"
    driver = DriverChoice(device, absolute(libcuda))
    request = Request(driver, quick, asked_for, str(cudart), tuple(only), tuple(models), null_kernels)
    directory = Path(out) if out else selftest_directory()
    if (directory / SELFTEST.file_name).exists():
        raise UsageError("this directory holds a self-test already", where=str(directory), next_step="another --out")

    test = Selftest(request, say)
    on_step("starting a worker on each side")
    described = test.described()
    store = ResultDirectory(directory, SELFTEST)
    duets: list[DuetSummary] = []

    def write(*, complete: bool = False) -> SelftestRecord:
        record = _record(test.findings, duets, request, complete, command)
        store.write_document(record)
        _write_pages(store, record)
        return record

    def step(text: str) -> None:
        write()  # what was found so far stays, however this ends
        on_step(text)

    try:
        store.write_json("environment.json", {side: each.to_dict() for side, each in described.items()})
        test.ask(step)
        for workload, engine in () if quick or only else headline_duets(request):
            step(f"duet {duet_title(workload, engine)}")
            duets.append(_duet(workload, engine, request, directory, duet_s, say))
        return write(complete=True)
    finally:
        store.close()


def headline_duets(request: Request) -> tuple[tuple[str, str], ...]:
    """Return the duets: of null kernels only those of frameworks, and those only where the runtime was asked for."""
    on_runtime = request.cuda_runtime and (request.null_kernels or request.driver.device != "software")
    return (*(() if request.null_kernels else HEADLINE_DUETS), *(RUNTIME_DUETS if on_runtime else ()))


def duet_title(workload: str, engine: str) -> str:
    """Return how a duet is called on the screen and in the documents."""
    return f"{workload} with {engine}" if engine else workload


def selftest_directory() -> Path:
    """Return the default directory of a self-test."""
    return Path("results") / f"selftest-{time.strftime('%Y%m%d-%H%M%S')}"


def _record(
    found: Findings, duets: Sequence[DuetSummary], request: Request, complete: bool, command: str
) -> SelftestRecord:
    import dataclasses

    from gputax.results.documents.selftest import CheckRecord, KernelTime, SelftestRecord
    from gputax.results.store import now_text
    from gputax.selftest.checks import counts, is_equal

    return SelftestRecord(
        gputax_version=__version__,
        timestamp=now_text(),
        command=command,
        device=request.driver.device,
        device_name=found.device_name,
        is_gpu=bool(found.device_name) and not found.device_name.startswith(SOFTWARE_DEVICE_NAME),
        null_kernels=request.null_kernels,
        quick=request.quick,
        cuda_runtime=request.cuda_runtime,
        only=request.only,
        complete=complete,
        equal=is_equal(found.checks),
        counts=counts(found.checks),
        checks=tuple(CheckRecord(**dataclasses.asdict(check)) for check in found.checks),
        evidence=found.evidence,
        kernel_times=tuple(KernelTime(**each) for each in found.kernel_times),
        duets=tuple(duets),
    )


def _write_pages(store: Any, record: SelftestRecord) -> None:
    from gputax.report.selftest import page, times_table

    store.write_text("report.md", page(record))
    if record.kernel_times:
        store.write_text("kernel-times.txt", times_table(record.kernel_times, record.device_name))


def duet_words(workload: str, engine: str, request: Request) -> str:
    """Return the command line that repeats a duet."""
    words = ["gputax duet bare bare+proxy", f"--workload {workload}", f"--device {request.driver.device}"]
    words += [f"--engine {engine} --cuda-runtime"] if engine else []
    words += ["--soft-kernels null"] if request.null_kernels else []
    return " ".join(words)


def _duet(workload: str, engine: str, request: Request, directory: Path, seconds: float, say: Say) -> DuetSummary:
    """Measure one headline; a duet that cannot be measured says why and leaves the rest alone."""
    from gputax.api.duets import duet
    from gputax.results.documents.selftest import DuetSummary

    driver, title = request.driver, duet_title(workload, engine)
    name = f"duet-{workload.replace(':', '-')}{f'-{engine}' if engine else ''}"
    more = SOFTWARE_OPERATION if driver.device == "software" and workload.startswith("micro") else {}
    try:
        comparison = duet(
            "bare",
            "bare+proxy",
            workload=workload,
            engine=engine,
            device=driver.device,
            libcuda=driver.libcuda,
            max_time_s=seconds,
            command=duet_words(workload, engine, request),
            out=directory / name,
            say=say,
            **more,
        )
    except Interrupted:
        raise
    except GputaxError as error:
        return DuetSummary(directory=name, workload=title, verdict="", overhead="", failure=error.what)
    return _summary(comparison, name, title)


def _summary(comparison: Comparison, name: str, workload: str) -> DuetSummary:
    from gputax.report.wording import WORDS
    from gputax.results.documents.selftest import DuetSummary
    from gputax.text import overhead

    row = next((each for each in comparison.metrics if each.metric == MEDIAN), comparison.metrics[0])
    shown = overhead(row.overhead_percent, row.ci95_percent, "%", row.budget)
    disturbed = ", on a disturbed machine" if comparison.disturbed else ""
    verdict = WORDS.get(row.verdict, row.verdict) + disturbed
    return DuetSummary(directory=name, workload=workload, verdict=verdict, overhead=shown)
