"""`gputax share`: tenants share one device, technique by technique, or beside neighbours that disturb."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gputax.cli.durations import seconds
from gputax.cli.environment_options import environment_options
from gputax.cli.lists import AtLeast, counts, names
from gputax.cli.options import command_text
from gputax.cli.share_refusals import refuse_ignored
from gputax.errors import UsageError, unknown_name
from gputax.plan.cells import DEVICES, PRECISIONS, Setup
from gputax.plan.engines import USER_ENGINES, parse_engine
from gputax.plan.micro import engine_for, expanded, known_names
from gputax.plan.neighbours import KINDS, VICTIMS
from gputax.plan.options import EnvironmentOptions
from gputax.plan.techniques import DEFAULT_TECHNIQUES, DEFAULT_TENANTS, TECHNIQUES, SharePlan
from gputax.plan.workloads import WORKLOADS

if TYPE_CHECKING:
    from gputax.measure.view import RunView
    from gputax.results.documents.sharing import SharingRecord
    from gputax.sharing.place import SharedPlace

EXIT_CELLS_FAILED = 4
EXIT_INVALID = 5
EXIT_NOT_ISOLATED = 6
# Beside neighbours each restart has many slots of that length: at 10 s all five kinds took over half an hour.
WINDOW, NEIGHBOURS_WINDOW = "10s", "2s"
MODEL, OPERATION = "yolos-small", "micro:operation"
BESIDE = (2,)
# A neighbour is made by --aggressor; its engine is no workload.


@click.command()
@click.option(
    "--env",
    "place",
    default="bare",
    show_default=True,
    type=click.Choice(list(DEFAULT_TECHNIQUES)),
    help="Where the device is: this machine, or a node of a cluster.",
)
@click.option("--tech", default="", help=f"Comma list of {', '.join(TECHNIQUES)}. [default: those of the place]")
@click.option(
    "--tenants", default=",".join(map(str, DEFAULT_TENANTS)), show_default=True, help="Comma list: how many at once."
)
@click.option("--workload", default="", help=f"What each tenant runs. [default: {MODEL}; {OPERATION} behind the proxy]")
@click.option("--engine", default="", help="onnx, torch, synthetic or driver, with :KEY=VALUE,… [default: onnx]")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, software; never replaced silently.")
@click.option("--precision", default="fp32", show_default=True, help="fp32, or fp16 where the device has it.")
@click.option("--threads", default=0, type=click.IntRange(0, 1024), help="CPU threads of each. [default: its share]")
@click.option("--weights", default="", help="Your own ONNX file, or `official`. [default: seeded]")
@click.option("--libcuda", default="", metavar="PATH", help="micro: another driver library.")
@click.option("--batch", default=1, show_default=True, type=click.IntRange(1), help="Samples of one inference.")
@click.option("--repeats", default=5, show_default=True, type=click.IntRange(1), help="Each with new processes.")
@click.option("--window", default="", help="How long all tenants run together. [default: 10s; 2s beside neighbours]")
@click.option("--warmup", default="2s", show_default=True, help="What is dropped before that.")
@click.option("--slices", default=0, type=click.IntRange(0), help="Parts of the device. [default: most tenants]")
@click.option("--seed", default=7, show_default=True, type=click.IntRange(0), help="Seed of weights, inputs and order.")
@click.option("--proxy-memory-mb", default=0, type=click.IntRange(0), help="bare, proxy: memory quota of a tenant.")
@click.option("--prometheus", default="", metavar="URL", help="Hold the mean against what Prometheus says of it.")
@click.option("--victim", default="", help="Scenario of the tenant that is measured beside neighbours: single-stream.")
@click.option("--aggressor", default="", help=f"Its neighbours, one after the other: {', '.join(KINDS)}.")
@click.option("--out", default="", help="Result directory. [default: results/share-ENV-TIME, or the unfinished one]")
@click.option("--overwrite", is_flag=True, help="Measure again into a directory that holds results.")
@click.option("--stall-timeout", default=0.0, type=AtLeast(0), help="End a worker silent for so many seconds.")
@click.option("--dry-run", is_flag=True, help="Show the cells and about how long they take; measure nothing.")
@click.option("--json", "as_json", is_flag=True, help="Write the record to stdout instead of the tables.")
@environment_options
def share(
    place: str, victim: str, aggressor: str, out: str, overwrite: bool, stall_timeout: float, dry_run: bool,
    as_json: bool, options: EnvironmentOptions, **chosen: Any,
) -> int:  # fmt: skip
    """Let tenants share a device: latency, throughput and fairness by technique and number of tenants.

    Each cell is written when it ends; after an interrupt the same command resumes.
    """
    plan = share_plan(place, {**chosen, "aggressor": aggressor})
    aggressors = _aggressors(victim, aggressor)
    refuse_ignored(plan, options, chosen)
    if dry_run:
        from gputax.cli.share_plan_text import show_plan

        return show_plan(plan, victim or VICTIMS[0], aggressors, as_json)
    # Imported here: numpy, pydantic and rich are not needed to refuse a wrong command line.
    from gputax.cli.views import view_for
    from gputax.places import shared_place

    named = {"command": command_text(), "overwrite": overwrite, "optional": not chosen["tech"]}
    with view_for(sys.stderr) as view:
        opened = shared_place(place, options, view.phase, proxy_memory_mb=chosen["proxy_memory_mb"])
        try:
            if aggressors:
                record, directory = _neighbours(plan, victim or VICTIMS[0], aggressors, out, named, opened, view)
            else:
                named |= {"stall_timeout_s": stall_timeout, "prometheus": chosen["prometheus"]}
                record, directory = _sharing(plan, out, named, opened, view)
        finally:
            opened.close()
    _show(record, directory, as_json)
    return exit_code(record)


def exit_code(record: SharingRecord) -> int:
    """Return what a pipeline must know: cells failed, a wall did not hold, or something was not proven."""
    broken = {f"{row.technique}-crash" for row in record.isolation if row.passed is False and "crash" in row.check}
    if any(failure.cell not in broken for failure in record.failures):
        return EXIT_CELLS_FAILED
    if any(row.passed is False for row in record.isolation):
        return EXIT_NOT_ISOLATED
    valid = all(cell.valid for cell in record.cells) and all(row.valid for row in record.neighbours)
    return 0 if valid else EXIT_INVALID


def share_plan(place: str, chosen: dict[str, Any]) -> SharePlan:
    """Return the plan of a command line, or refuse it."""
    techniques = names(chosen["tech"], "tech", TECHNIQUES) if chosen["tech"] else DEFAULT_TECHNIQUES[place]
    for kind, known in (("device", DEVICES), ("precision", PRECISIONS)):
        if chosen[kind] not in known:
            raise unknown_name(kind, chosen[kind], known)
    default = OPERATION if techniques == ("proxy",) else MODEL
    workloads = expanded(names(chosen["workload"] or default, "workload", known_names(tuple(WORKLOADS))))
    if len(workloads) != 1:
        raise UsageError("all tenants run one workload", next_step=f"e.g. --workload {OPERATION}")
    engine = engine_for(workloads[0], chosen["engine"])
    if chosen["engine"].partition(":")[0] not in ("", *USER_ENGINES):
        raise unknown_name("engine", chosen["engine"].partition(":")[0], USER_ENGINES)
    parse_engine(engine)
    window = chosen["window"] or (NEIGHBOURS_WINDOW if chosen.get("aggressor") else WINDOW)
    window_s, warmup_s = seconds(window, "--window", "10s"), seconds(chosen["warmup"], "--warmup", "2s")
    if window_s <= 0:
        raise UsageError("--window must be longer than nothing", next_step="e.g. --window 10s")
    setup = Setup(
        workloads[0],
        engine=engine,
        device=chosen["device"],
        precision=chosen["precision"],
        threads=chosen["threads"],
        weights=_absolute(chosen["weights"]),
        sample_count=max(8, chosen["batch"]),
        max_batch=chosen["batch"],
        seed=chosen["seed"],
        libcuda=_absolute(chosen["libcuda"]),
    )
    return SharePlan(
        place,
        techniques,
        _tenants(chosen),
        setup,
        repeats=chosen["repeats"],
        warmup_s=warmup_s,
        window_s=window_s,
        batch_size=chosen["batch"],
        slices=chosen["slices"],
        seed=chosen["seed"],
    )


def _tenants(chosen: dict[str, Any]) -> tuple[int, ...]:
    """Return how many tenants there are at once; beside neighbours that is settled."""
    found = counts(chosen["tenants"], "tenants", ",".join(map(str, DEFAULT_TENANTS)))
    if not chosen.get("aggressor"):
        return found
    if found not in (DEFAULT_TENANTS, BESIDE):
        raise UsageError("beside a neighbour there are two tenants", next_step="drop --tenants")
    return BESIDE


def _absolute(path: str) -> str:
    """The worker may start elsewhere, so a path is sent whole."""
    return str(Path(path).expanduser().resolve()) if path and path != "official" else path


def _aggressors(victim: str, aggressor: str) -> tuple[str, ...]:
    if victim and victim not in VICTIMS:
        raise unknown_name("victim", victim, VICTIMS)
    if victim and not aggressor:
        raise UsageError("--victim names no neighbour to measure it beside", next_step=f"--aggressor {','.join(KINDS)}")
    return names(aggressor, "aggressor", KINDS) if aggressor else ()


def _sharing(
    plan: SharePlan, out: str, named: dict[str, Any], place: SharedPlace, view: RunView
) -> tuple[SharingRecord, Path]:
    from gputax.measure.share.execution import ShareRequest, measure_sharing

    directory = _directory(out, plan.place, plan.id)
    return measure_sharing(ShareRequest(plan, directory, **named), place, view), directory


def _neighbours(
    plan: SharePlan, victim: str, aggressors: tuple[str, ...], out: str, named: dict[str, Any], place: SharedPlace,
    view: RunView,
) -> tuple[SharingRecord, Path]:  # fmt: skip
    from gputax.measure.neighbours.execution import NeighboursRequest, measure_neighbours

    asked = NeighboursRequest(plan, victim, aggressors, Path(out), **named)
    request = dataclasses.replace(asked, directory=_directory(out, plan.place, asked.plan_id))
    return measure_neighbours(request, place, view), request.directory


def _directory(out: str, place: str, plan_id: str) -> Path:
    from gputax.results.sharing_store import default_sharing_directory

    return Path(out) if out else default_sharing_directory(Path("results"), place, plan_id)


def _show(record: SharingRecord, directory: Path, as_json: bool) -> None:
    if as_json:
        click.echo(record.model_dump_json(indent=2))
        return
    from gputax.cli.results import show_results

    show_results(directory)
