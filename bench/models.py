"""What a model costs on the software device, directly and behind the GPU proxy; none of these figures is a GPU's.

CPU time, not wall time, where the device itself is measured: it computes on this machine's cores, and other processes
on them would be in the wall time.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.intervals import median_interval
from gputax import api
from gputax.environments.bare import Bare
from gputax.environments.driver import SOFTWARE_DEVICE, native_part
from gputax.environments.proxy import SOCKET_VARIABLE, ProxyOptions, own_proxy
from gputax.errors import GputaxError
from gputax.measure.session import WorkerSession
from gputax.measure.view import SilentView
from gputax.places import environment_named
from gputax.plan.cells import Setup
from gputax.plan.driver import DriverChoice, driver_choice
from gputax.plan.own_model import OwnModel
from gputax.results.documents.comparison import Comparison
from gputax.worker.workloads.model_store import models_folder

ENGINE = "tinygrad"
RESNET50_RUNS = 20
BERT_LARGE_RUNS = 3
# BERT-Large's weights are 1.3 GB.
BERT_LARGE_MEMORY_MB = 2048
CALLS_RUNS = 10
DUET_S = 600.0
CACHE_STARTS = 5


def soft_resnet50() -> dict[str, Any]:
    """CPU seconds of one inference of ResNet-50, batch 1."""
    return inference_cpu("resnet50", RESNET50_RUNS, "soft_resnet50_cpu_s")


def soft_bert_large() -> dict[str, Any]:
    """CPU seconds of one inference of BERT-Large, sequence of 384 tokens, batch 1."""
    with api.variables_set(api.variables_named({"soft_memory_mb": BERT_LARGE_MEMORY_MB})):
        return inference_cpu("bert-large", BERT_LARGE_RUNS, "soft_bert_large_cpu_s")


def inference_cpu(workload: str, runs: int, key: str, model: str = "") -> dict[str, Any]:
    """Return the CPU seconds of single runs in a worker whose device is inside of its own process."""
    setup = _setup(workload, model)
    try:
        session = WorkerSession(environment_named("bare", driver=driver_choice(setup)), setup, SilentView())
    except GputaxError as error:
        return {key: None, f"{key}_why": error.what}
    try:
        slots = [
            session.slot(1, runs=1 + (not number), first_run=number, dropped=int(not number)) for number in range(runs)
        ]
    finally:
        session.end()
    each_s = [(slot.cpu_ns or 0) / 1e9 for slot in slots]
    return {key: statistics.median(each_s), f"{key}_ci95": median_interval(each_s), f"{key}_runs": each_s}


def soft_compile(workload: str = "resnet50", model: str = "", starts: int = CACHE_STARTS) -> dict[str, Any]:
    """How long until a model's kernels are native code: with an empty cache, and from the cache of that start.

    By the clock, which is what a user waits for, on all cores of this machine; and in CPU seconds.
    """
    with tempfile.TemporaryDirectory() as cache:
        variables = {"XDG_CACHE_HOME": cache, "GPUTAX_MODELS": str(models_folder())}
        first_run(workload, model, variables)  # captures the model, if this was never done; and fills the cache
        kept = Path(cache) / "gputax"
        if not kept.exists():
            why = "the device kept no compiled code: it interprets"
            return {"soft_compile_cold_s": None, "soft_compile_cached_s": None, "soft_compile_why": why}
        shutil.rmtree(kept)
        cold = first_run(workload, model, variables)
        cached = [first_run(workload, model, variables) for _ in range(starts)]
    cached_s = [each["compile"]["wall_s"] for each in cached]
    return {
        "soft_compile_cold_s": cold["compile"]["wall_s"],
        "soft_compile_cold_cpu_s": cold["compile"]["cpu_s"],
        "soft_compile_cached_s": statistics.median(cached_s),
        "soft_compile_cached_cpu_s": statistics.median(each["compile"]["cpu_s"] for each in cached),
        "soft_compile_cached_s_ci95": median_interval(cached_s),
        "soft_compile_kernels": cold["kernels"],
        "soft_compile_why": None,
    }


def first_run(workload: str, model: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """Start `bench.first_run` on the software device."""
    words = [sys.executable, "-m", "bench.first_run", workload, *([model] if model else [])]
    with Bare(DriverChoice("software")).surroundings() as surroundings:
        environ = {**surroundings, **variables}
        done = subprocess.run(words, env=environ, stdout=subprocess.PIPE, check=True, timeout=1800)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def proxy_resnet50() -> dict[str, Any]:
    """By how much an inference of ResNet-50 grows behind the proxy: a duet, both sides on the software device.

    Without the A/A control, whose third worker would take a third of the pairs: the interval is what counts here.
    """
    with tempfile.TemporaryDirectory() as directory:
        comparison = api.duet(
            "bare", "bare+proxy", workload="resnet50", device="software", budgets=("1%",), max_time_s=DUET_S,
            control=False, out=Path(directory) / "duet",
        )  # fmt: skip
    return overhead_figures(comparison, "proxy_resnet50")


def overhead_figures(comparison: Comparison, key: str) -> dict[str, Any]:
    """Return the overheads of median and mean as parts of one, with their intervals."""
    rows = {row.metric: row for row in comparison.metrics}
    figures: dict[str, Any] = {}
    for metric, name in (("latency_p50", f"{key}_overhead"), ("latency_mean", f"{key}_mean_overhead")):
        row = rows.get(metric)
        if row is None or row.overhead_percent is None:
            figures[name] = None
            continue
        figures[name] = row.overhead_percent / 100
        bounds = row.ci95_percent
        if bounds is not None and None not in bounds:
            figures[f"{name}_ci95"] = [bound / 100 for bound in bounds if bound is not None]
    return {**figures, f"{key}_seconds": comparison.settings.get("seconds")}


def proxy_calls(workload: str = "resnet50", model: str = "", runs: int = CALLS_RUNS) -> dict[str, Any]:
    """Driver calls that one inference sends to the proxy: those that wait for an answer, and those only posted."""
    setup = _setup(workload, model)
    with (
        own_proxy(ProxyOptions(native_part(SOFTWARE_DEVICE)), os.environ) as address,
        api.variables_set({SOCKET_VARIABLE: str(address.socket)}),
    ):
        session = WorkerSession(environment_named("bare+proxy", driver=driver_choice(setup)), setup, SilentView())
        try:
            session.slot(1, runs=1, first_run=0, dropped=0)
            before = address.status()
            session.slot(1, runs=runs, first_run=1, dropped=0)
            after = address.status()
        finally:
            session.end()
    return calls_between(before, after, runs)


def calls_between(before: Mapping[str, Any], after: Mapping[str, Any], runs: int) -> dict[str, Any]:
    """Return the calls of one run from the proxy's own counters before and after."""
    (old,), (new,) = before["tenants"], after["tenants"]
    # A side asks for the other's wait policy when its own changes, not because of an inference.
    made = {
        name: (count - old["calls"].get(name, 0)) / runs
        for name, count in new["calls"].items()
        if name != "gputaxWaitPolicy"
    }
    posted = (new["posted_calls"] - old["posted_calls"]) / runs
    return {
        "proxy_calls_per_inference": sum(made.values()),
        "proxy_calls_per_inference_posted": posted,
        "proxy_calls_per_inference_answered": sum(made.values()) - posted,
        "proxy_calls_per_inference_by_name": {name: count for name, count in made.items() if count},
        "proxy_replayed_steps_per_inference": (new["replayed_steps"] - old["replayed_steps"]) / runs,
    }


def _setup(workload: str, model: str) -> Setup:
    own = api.own_model(model) if model else OwnModel()
    return Setup(
        own.name if model else workload, engine=ENGINE, device="software", own=own, sample_count=4, max_batch=1
    )
