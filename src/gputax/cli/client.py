"""`gputax client`: the tenant of a shared device, with its metrics for Prometheus."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gputax.cli.options import Verb, as_json, options, own, seconds, variable_options, words_given
from gputax.errors import UsageError, unknown_name
from gputax.plan.cells import Setup, absolute, device_named, precision_named
from gputax.plan.driver import driver_choice, refuse_driver_contradictions
from gputax.plan.engines import waiting_passively
from gputax.plan.micro import MICRO, OPERATIONS, engine_for
from gputax.plan.options import TENANTS, declared
from gputax.plan.techniques import SYNONYMS, TECHNIQUES
from gputax.plan.workloads import WORKLOADS, workload_facts

if TYPE_CHECKING:
    from gputax.worker.tenant.client import TenantPlan

TECHNIQUE_VARIABLE = "GPUTAX_TECHNIQUE"
DRIVER_SONAME = "libcuda.so.1"
# The users' own tenant has one image; a few more keep one input from living in the processor's caches.
SAMPLES = 4
# One arrival in a microsecond: about what it takes to read the clock.
MOST_PER_S = 1_000_000
_RATES = f"e.g. --rate 20/s or --rate 0.5, at most {MOST_PER_S}/s; 5 in a minute are --rate 0.0833/s"
_TIMES_NS = {"us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


@click.command(cls=Verb)
@options(
    declared("workload", help=f"One of {', '.join(WORKLOADS)}, {MICRO}:OPERATION.", default="yolos-small"),
    declared("engine", help="onnx, torch, synthetic or driver, with :KEY=VALUE,… [default: onnx]"),
    declared("device"),
    declared("batch", help="Samples of one run."),
    declared("precision"),
    declared("threads"),
    declared("weights"),
    own(
        "port",
        "Port of /metrics; 0: any free port.",
        8000,
        least=0,
        most=65535,
        short=True,
        show_default=True,
        group=TENANTS,
    ),
    own("address", "Where /metrics listens.", "0.0.0.0", show_default=True, group=TENANTS),
    own("duration", "e.g. 90s or 10m. [default: until SIGTERM or Ctrl-C]", short=True, metavar="TIME"),
    own("warmup", "Warm-up seconds that are not counted.", 1.0, least=0, show_default=True),
    own("rate", "Poisson arrivals per second: 20/s, 0.5. [default: a closed loop]", short=True, metavar="R/s"),
    own("goodput", "Count inferences that finish within this time, e.g. 100ms.", short=True, metavar="TIME"),
    own(
        "technique",
        "How the device is shared: a label only.",
        metavar="NAME",
        variable=TECHNIQUE_VARIABLE,
        group=TENANTS,
    ),
    declared("seed", help="Seed of weights, inputs and arrivals."),
    as_json("Write the summary to stdout as JSON."),
)
@variable_options
def client(port: int, address: str, goodput: str, as_json: bool, **chosen: Any) -> int:
    """Run inferences one after the other, and show their times at /metrics.

    Ends at SIGTERM or Ctrl-C after the running inference, with a summary; a second signal ends it at once. After ten
    failures in a row it ends with exit code 4.
    """
    plan = _plan(chosen)
    target_ns = time_ns(goodput, "--goodput") if goodput else 0
    if (code := _beside_its_driver(plan.setup)) is not None:
        return code
    # Imported here: the library of the metrics takes 160 ms, which a wrong command line need not wait for.
    from gputax.cli.client_run import run_client

    return run_client(plan, target_ns, address, port, as_json)


def _plan(chosen: dict[str, Any]) -> TenantPlan:
    device_named(chosen["device"])
    precision_named(chosen["precision"])
    if chosen["technique"] not in ("", *TECHNIQUES):
        raise unknown_name("technique", chosen["technique"], TECHNIQUES, SYNONYMS)
    workload, batch = chosen["workload"], chosen["batch"]
    if workload not in OPERATIONS and workload.partition(":")[0] == MICRO:
        raise UsageError(f"a tenant runs one operation of {MICRO}", next_step=f"--workload {next(iter(OPERATIONS))}")
    workload_facts(workload)
    setup = Setup(
        workload,
        engine=waiting_passively(engine_for(workload, chosen["engine"])),
        device=chosen["device"],
        precision=chosen["precision"],
        threads=chosen["threads"],
        weights=absolute(chosen["weights"]),
        sample_count=max(SAMPLES, batch),
        max_batch=batch,
        seed=chosen["seed"],
    )
    refuse_driver_contradictions("bare", setup)
    duration_s = seconds(chosen["duration"], "--duration") if chosen["duration"] else 0.0
    if chosen["duration"] and not duration_s:
        raise UsageError(
            "--duration 0 leaves no time to measure",
            next_step="e.g. --duration 90s; without it the client runs until SIGTERM or Ctrl-C",
        )
    rate_per_s = _rate(chosen["rate"]) if chosen["rate"] else 0.0
    from gputax.worker.tenant.client import TenantPlan

    return TenantPlan(setup, batch, chosen["warmup"], duration_s, rate_per_s, chosen["technique"])


def time_ns(text: str, option: str) -> int:
    """Return the nanoseconds of `100ms`, `0.5s` or `250us`; a number without a unit says too little."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(us|µs|ms|s)", text.strip())
    value = round(float(found[1]) * _TIMES_NS[found[2]]) if found else 0
    if value <= 0:
        raise UsageError(f"{option} {text!r} is not a time above zero", next_step=f"e.g. {option} 100ms")
    return value


def _rate(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(/s)?", text.strip())
    if not found:
        raise UsageError(
            f"--rate {text!r} is not a rate per second: a plain number, with or without /s", next_step=_RATES
        )
    rate = float(found[1])
    if not rate:
        raise UsageError(f"--rate {text!r} is not a rate above zero", next_step=_RATES)
    if rate > MOST_PER_S:
        raise UsageError(f"--rate {text!r} is more than {MOST_PER_S}/s, the maximum", next_step=_RATES)
    return rate


def _beside_its_driver(setup: Setup) -> int | None:
    """Run this command again where the loader finds the driver that was asked for; None where it does already.

    The loader reads its path only when a program starts. Who has set that path, `gputax exec` for one, knows better:
    then the engine only checks that the device is the one that was asked for.
    """
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    if not driver_choice(setup).needed or any((Path(each) / DRIVER_SONAME).exists() for each in folders if each):
        return None
    from gputax.cli.exec import run_program
    from gputax.places import local_environment

    place = local_environment("bare", driver_choice(setup))
    with place.surroundings() as variables:
        if place.note:
            click.echo(f"gputax: {place.note}", err=True)
        if variables == dict(os.environ):
            return None
        code = run_program((sys.executable, "-m", "gputax", *words_given()), variables)
    return code if code >= 0 else 128 - code
