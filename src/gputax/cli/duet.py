"""`gputax duet`: two environments measured in fine alternation, judged as pairs."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gputax.cli.environment_options import environment_options
from gputax.cli.gate import exit_code
from gputax.cli.lists import AtLeast, names
from gputax.cli.options import command_text
from gputax.errors import Interrupted, UsageError, unknown_name
from gputax.places import refuse_unknown
from gputax.plan.budgets import Budget
from gputax.plan.cells import DEVICES, MULTI_STREAM_SAMPLES_PER_QUERY, PRECISIONS, SCENARIOS, Setup
from gputax.plan.driver import refuse_driver_contradictions
from gputax.plan.engines import waiting_passively
from gputax.plan.metrics import METRICS
from gputax.plan.micro import MICRO, engine_for, expanded, is_micro, known_names
from gputax.plan.micro import SCENARIOS as MICRO_SCENARIOS
from gputax.plan.options import EnvironmentOptions
from gputax.plan.suites import wanted_budgets
from gputax.plan.workloads import WORKLOADS

if TYPE_CHECKING:
    from gputax.measure.duet.pairs import DuetData
    from gputax.measure.duet.request import DuetRequest
    from gputax.stats.stopping import StopDecision

# A quarter of the budget: then an overhead in the middle of it is decided either way.
WIDTH_SHARE = 0.25


@click.command()
@click.argument("a")
@click.argument("b")
@click.option("--workload", default="resnet50", show_default=True, help=f"One of {', '.join(WORKLOADS)}, {MICRO}.")
@click.option("--scenario", default="single-stream", show_default=True, help=f"One of {', '.join(SCENARIOS)}.")
@click.option("--batch", default=1, show_default=True, type=click.IntRange(1), help="Batch of offline and saturate.")
@click.option("--engine", default="", help="Engine of both sides, with :KEY=VALUE,… [default: onnx; micro: driver]")
@click.option("--engine-b", default="", help="Another engine for B: the difference is then what is measured.")
@click.option(
    "--device", default="auto", show_default=True, help="auto, cpu, cuda, software; never replaced in silence."
)
@click.option(
    "--libcuda", default="", metavar="PATH", help="micro: another driver library, as a file or its directory."
)
@click.option("--precision", default="fp32", show_default=True, help="fp32, or fp16 where the device has it.")
@click.option("--threads", default=0, type=click.IntRange(0, 1024), help="CPU threads. [default: affinity and quota]")
@click.option("--budget", "budgets", multiple=True, help="e.g. 5%, or latency_p99=2ms. [default: the layers' own]")
@click.option(
    "--suite", default="", metavar="NAME|FILE", help="Take the budgets of this suite where --budget is silent."
)
@click.option("--width", default="", help="Stop at this half-width of the interval, e.g. 1%. [default: budget / 4]")
@click.option("--max-time", default=120.0, show_default=True, type=AtLeast(5), help="Seconds, A/A included.")
@click.option("--control/--no-control", default=True, help="Measure A against itself first.")
@click.option("--seed", default=7, show_default=True, type=click.IntRange(0), help="Seed of weights, inputs and order.")
@click.option("--stall-timeout", default=0.0, type=AtLeast(0), help="End a worker silent for so many seconds.")
@click.option("--out", default="", help="Result directory. [default: results/duet-A-B-TIME]")
@click.option("--json", "as_json", is_flag=True, help="Write the comparison to stdout instead of the table.")
@click.option("--for-a", multiple=True, metavar="KEY=VALUE", help="An option of the place for A alone, e.g. cpus=2.")
@click.option("--for-b", multiple=True, metavar="KEY=VALUE", help="The same for B, e.g. image=gputax:next.")
@environment_options
def duet(a: str, b: str, budgets: tuple[str, ...], width: str, out: str, as_json: bool, **chosen: Any) -> int:
    """Say what B costs over A: pairs in random order, an interval, a verdict against the budget.

    Exits with 0 (pass), 6 (over budget) or 7 (inconclusive).
    """
    request = _request(a, b, budgets, width, chosen)
    # Imported here: numpy and pydantic are not needed to refuse a wrong command line.
    from gputax.measure.duet.execution import execute_duet
    from gputax.measure.duet.pairs import INTERRUPTED

    directory = Path(out) if out else Path("results") / f"duet-{_word(a)}-{_word(b)}-{time.strftime('%Y%m%d-%H%M%S')}"
    if (directory / "comparison.json").exists():
        raise UsageError(
            "this directory holds a comparison already", where=str(directory), next_step="choose another --out"
        )
    progress = Progress(chosen["max_time"])
    comparison = execute_duet(request, directory, progress.say, progress.pair)
    if as_json:
        click.echo(comparison.model_dump_json(indent=2))
    else:
        from gputax.cli.results import show_results

        show_results(directory)
    if any(warning.code == INTERRUPTED for warning in comparison.warnings):
        return Interrupted.exit_code
    return exit_code(comparison)


def _request(a: str, b: str, budget_words: tuple[str, ...], width: str, chosen: dict[str, Any]) -> DuetRequest:
    from gputax.measure.duet.request import DuetRequest
    from gputax.measure.duet.sides import SideSpec

    for name in (a, b):
        refuse_unknown(name)
    options: EnvironmentOptions = chosen["options"]
    for kind, known in (("device", DEVICES), ("precision", PRECISIONS), ("scenario", SCENARIOS)):
        if chosen[kind] not in known:
            raise unknown_name(kind, chosen[kind], known)
    scenario = chosen["scenario"]
    workloads = _workloads(chosen["workload"], scenario)
    workload = workloads[0]
    engine = engine_for(workload, chosen["engine"])
    batch = {"single-stream": 1, "multi-stream": MULTI_STREAM_SAMPLES_PER_QUERY}.get(scenario, chosen["batch"])
    engine_b = chosen["engine_b"] or engine
    wanted = wanted_budgets(budget_words, chosen["suite"])
    budgets = {name: wanted.for_metric(a, b, name) for name in METRICS}
    main_budget = next(budget for budget in budgets.values() if budget.unit == "%")

    def side(label: str, environment: str, engine: str, changes: tuple[str, ...]) -> SideSpec:
        setup = Setup(
            workload,
            engine=waiting_passively(engine),
            device=chosen["device"],
            precision=chosen["precision"],
            threads=chosen["threads"],
            max_batch=max(batch, 1),
            sample_count=max(32, batch),
            seed=chosen["seed"],
            libcuda=str(Path(chosen["libcuda"]).expanduser().resolve()) if chosen["libcuda"] else "",
        )
        refuse_driver_contradictions(environment, setup)
        return SideSpec(label, environment, setup, options.changed(changes))

    label_b = b if b != a else f"{b} (B)"
    return DuetRequest(
        side(a, a, engine, chosen["for_a"]),
        side(label_b, b, engine_b, chosen["for_b"]),
        scenario,
        batch,
        budgets,
        _width(width, main_budget),
        chosen["max_time"],
        chosen["control"],
        chosen["seed"],
        chosen["stall_timeout"],
        command_text(),
        injected=bool(chosen["engine_b"]),
        named=frozenset(wanted.metrics),
        workloads=workloads,
    )


def _workloads(text: str, scenario: str) -> tuple[str, ...]:
    """Return what is measured: one model, or the operations of micro, which share one worker on each side."""
    workloads = expanded(names(text, "workload", known_names(tuple(WORKLOADS))))
    operations = [is_micro(workload) for workload in workloads]
    if len(workloads) > 1 and not all(operations):
        raise UsageError("a duet takes one model, or operations of micro", next_step="one duet for each model")
    if any(operations) and scenario not in MICRO_SCENARIOS:
        raise UsageError(
            f"{MICRO} has no scenario {scenario}", next_step=f"use --scenario {' or '.join(MICRO_SCENARIOS)}"
        )
    return workloads


def _width(text: str, budget: Budget) -> float:
    if not text:
        return max(0.1, WIDTH_SHARE * budget.value)
    try:
        width = float(text.rstrip("%"))
    except ValueError:
        width = math.nan
    if not 0.0 < width < math.inf:
        raise UsageError(f"--width {text!r} is no percentage above zero", next_step="e.g. --width 1%")
    return width


def _word(environment: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in environment)


class Progress:
    """Plain lines, at most one every five seconds; on a terminal one line that is rewritten."""

    def __init__(self, max_time_s: float) -> None:
        self._started = 0.0
        """The limit is on the pairs: loading and the pilot come before it."""
        self._max_time_s = max_time_s
        self._last = 0.0
        self._terminal = sys.stderr.isatty()

    def say(self, text: str) -> None:
        """Begin a new phase."""
        end = "\x1b[K\n" if self._terminal else "\n"
        print(f"gputax: {text}", end=end, file=sys.stderr, flush=True)

    def pair(self, data: DuetData, decision: StopDecision) -> None:
        """Show how sharp the interval is; not the overhead, because nobody should stop on what it seems to show."""
        now = time.monotonic()
        self._started = self._started or now
        if now - self._last < (0.25 if self._terminal else 5.0) or decision.half_width_percent is None:
            return
        self._last = now
        in_time = len(data.pairs) * self._max_time_s / max(now - self._started, 0.1)
        wanted = decision.pairs_expected
        expected = f" of about {wanted}" if wanted and wanted <= in_time else ""
        line = (
            f"    {len(data.pairs)} pairs{expected}, interval ±{decision.half_width_percent:.2f} %, "
            f"{now - self._started:.0f} s of at most {self._max_time_s:.0f} s"
        )
        print(line, end="\x1b[K\r" if self._terminal else "\n", file=sys.stderr, flush=True)
