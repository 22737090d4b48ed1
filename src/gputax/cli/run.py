"""`gputax run`: plan the cells, run them, show the table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gputax.cli.options import (
    Verb,
    as_json,
    counts,
    listed,
    model_options,
    names,
    once,
    options,
    own,
    place_options,
    program_options,
    server_options,
    variable_options,
    was_given,
)
from gputax.errors import UsageError
from gputax.places import ENVIRONMENTS, refuse_unknown
from gputax.plan.cells import SCENARIOS, Cell, scenario_named
from gputax.plan.driver import engine_note
from gputax.plan.options import OUTPUT, SERVER, SETUP, EnvironmentOptions, declared
from gputax.plan.suites import load_plan
from gputax.plan.workloads import MICRO, SYNONYMS, WORKLOADS, known_names
from gputax.text import counted, duration

if TYPE_CHECKING:
    from gputax.results.documents.run import RunRecord

EXIT_CELLS_FAILED = 4
EXIT_INVALID = 5


@click.command(cls=Verb)
@options(
    own(
        "env",
        f"Where the worker runs: {', '.join(ENVIRONMENTS)}.",
        "bare",
        short=True,
        show_default=True,
        key="environment",
    ),
    declared("workload", help=f"Comma list of {', '.join(WORKLOADS)}, {MICRO}."),
    declared("scenario", help=f"Comma list of {', '.join(SCENARIOS)}. [default: the suite's]"),
    declared(
        "batch", help="Comma list of batch sizes (offline), largest batches (server).", default="", show_default=False
    ),
    declared("suite"),
    declared("engine"),
    declared("device"),
    declared("libcuda"),
    declared("precision"),
    declared("threads"),
    declared("weights"),
    own("dataset", "ImageNet-style folder with val_map.txt instead of synthetic inputs.", group=SETUP),
    own("qps", "Server: arrivals per second. [default: chosen by a probe]", 0.0, group=SERVER, least=0),
    own("find-peak", "Server: find the highest valid rate, with repeated probes.", False, group=SERVER),
    own(
        "bound-ms", "Server: latency bound of the suite's percentile. [default: workload's]", 0.0, group=SERVER, least=0
    ),
    own("max-wait-us", "Server: how long the batcher may wait.", 0, group=SERVER, least=0),
    declared("seed", help="Seed of weights, inputs and order."),
    own(
        "repeats",
        "Measure every cell N times, each time with a new worker; compare needs 3 on each side.",
        1,
        least=1,
        show_default=True,
        short=True,
    ),
    own(
        "like",
        "An earlier run: take its cells, rates, bounds, threads, inputs and repeats, so that compare can judge.",
        metavar="DIRECTORY",
        short=True,
    ),
    declared("out", help="Result directory. [default: results/ENV-TIME, or the unfinished one]"),
    declared("overwrite"),
    declared("stall-timeout"),
    declared("wait-quiet"),
    declared("accept-disturbed"),
    declared("dry-run"),
    as_json("Write the run record to stdout instead of the table."),
    own("result-block", "Append the block that `gputax compare` reads from a log.", False, group=OUTPUT),
)
@program_options
@model_options
@server_options
@place_options
@variable_options
def run(
    environment: str, workload: str, scenario: str, batch: str, suite: str, repeats: int, like: str, out: str,
    overwrite: bool, stall_timeout: float, wait_quiet: float, accept_disturbed: bool, dry_run: bool, as_json: bool,
    result_block: bool,
    options: EnvironmentOptions, **chosen: Any,
) -> int:  # fmt: skip
    """Measure inference in an environment: LoadGen's scenarios on real models, results on disk.

    Each cell is written when it ends; after an interrupt the same command resumes.
    """
    refuse_unknown(environment)
    picked: dict[str, Any] = {
        "workloads": names(workload, "workload", known_names(tuple(WORKLOADS)), SYNONYMS),
        "scenarios": once(tuple(map(scenario_named, listed(scenario, "scenario"))), "scenario") if scenario else (),
        "batches": counts(batch, "batch") if batch else (),
    }
    if like:
        cells, repeats = _like(like, environment, picked, chosen, repeats)
    else:
        cells = load_plan(suite, environment=environment, **picked, **chosen)
    if dry_run:
        return _show_plan(cells, repeats, as_json)
    for note in {engine_note(cell.setup.engine, chosen["engine"] or like) for cell in cells} - {""}:
        click.echo(f"gputax: {note}", err=True)
    # Imported here: pydantic, numpy and rich are not needed to refuse a wrong command line.
    from gputax import api
    from gputax.cli.progress import Progress, look_first

    directory = api.run_directory(cells, out)
    with Progress(sys.stderr) as view:
        look_first(view, (environment,), wait_quiet=wait_quiet, accept_disturbed=accept_disturbed, options=options)
        record = api.run(
            cells, out=directory, repeats=repeats, overwrite=overwrite, stall_timeout_s=stall_timeout, options=options,
            view=view,
        )  # fmt: skip
    _show(record, directory, as_json, result_block)
    return exit_code(record, accept_disturbed)


def _like(
    directory: str, environment: str, picked: dict[str, Any], chosen: dict[str, Any], repeats: int
) -> tuple[tuple[Cell, ...], int]:
    """Return the cells and repeats of an earlier run; options of the command line win, with a warning."""
    chosen.pop("program")
    if chosen.pop("own").file:
        raise UsageError("--like takes the model of an earlier run, --model another", next_step="use one of them")
    if was_given("suite"):
        raise UsageError("--like takes the sizes of an earlier run, --suite others", next_step="use one of them")
    from gputax import api

    words = {"workloads": "workload", "scenarios": "scenario", "batches": "batch"}
    planned = api.plan_like(
        directory,
        environment,
        **{name: values for name, values in picked.items() if was_given(words[name])},
        **{name: value for name, value in chosen.items() if was_given(name)},
    )
    for text in planned.contradictions:
        click.echo(f"gputax: warning: {text}: not comparable with {directory}", err=True)
    return planned.cells, repeats if was_given("repeats") else planned.repeats


def exit_code(record: RunRecord, accept_disturbed: bool) -> int:
    """Return what a pipeline must know: cells failed, or something is not valid or was disturbed."""
    if record.failures:
        return EXIT_CELLS_FAILED
    usable = all(each.valid and (accept_disturbed or not each.disturbed) for each in record.benchmarks)
    return 0 if usable else EXIT_INVALID


def _show_plan(cells: tuple[Cell, ...], repeats: int, as_json: bool) -> int:
    from gputax.cli.progress import cell_title, expected_s

    if as_json:
        import json

        click.echo(json.dumps([cell.to_dict() for cell in cells], indent=2))
        return 0
    from gputax.report.exporters.console_text import Screen
    from gputax.report.machine_tables import planned_table

    screen = Screen(sys.stdout)
    screen.table(planned_table([("", cell_title(cell), expected_s(cell)) for cell in cells]))
    total_s = repeats * sum(expected_s(cell) for cell in cells)
    often = f", {repeats} times each" if repeats > 1 else ""
    screen.say(
        f"{counted(len(cells), 'cell')}{often}, at least {duration(total_s)}; a slow device takes longer, because a "
        "stream or server needs 64 queries and offline 5 batches. Nothing was measured."
    )
    return 0


def _show(record: RunRecord, directory: Path, as_json: bool, result_block: bool) -> None:
    from gputax.results.importers import pod_log

    if as_json:
        click.echo(record.model_dump_json(indent=2))
    else:
        from gputax.report.output import show_results

        show_results(directory, sys.stdout)
    if result_block:
        sys.stderr.flush()
        click.echo(pod_log.result_block(record), nl=False)
