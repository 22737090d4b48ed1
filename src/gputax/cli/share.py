"""`gputax share`: tenants share one device, technique by technique, or beside neighbours that disturb."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from gputax.cli.options import (
    Verb,
    as_json,
    command_text,
    counts,
    model_options,
    names,
    options,
    own,
    percentage,
    place_options,
    seconds,
    server_options,
    variable_options,
)
from gputax.errors import UsageError
from gputax.plan.cells import scenario_named
from gputax.plan.driver import engine_note
from gputax.plan.options import PLACE_OPTIONS, TENANTS, EnvironmentOptions, declared
from gputax.plan.shares import parse_shares
from gputax.plan.techniques import DEFAULT_TECHNIQUES, DEFAULT_TENANTS, KINDS, SYNONYMS, TECHNIQUES, VICTIMS, SharePlan
from gputax.plan.workloads import SYNONYMS as WORKLOAD_SYNONYMS
from gputax.plan.workloads import WORKLOADS, known_names
from gputax.text import counted, duration

if TYPE_CHECKING:
    from gputax.results.documents.sharing import NeighbourRow, SharedCell, SharingRecord

EXIT_CELLS_FAILED = 4
EXIT_INVALID = 5
EXIT_NOT_ISOLATED = 6
EXIT_UNDECIDED = 7
UNDECIDED = ("inconclusive", "not comparable")
_TENANTS = ",".join(map(str, DEFAULT_TENANTS))


@click.command(cls=Verb)
@options(
    own(
        "env",
        "Where the device is: this machine, or a node of a cluster.",
        "bare",
        short=True,
        show_default=True,
        key="place",
        choices=tuple(DEFAULT_TECHNIQUES),
        group=TENANTS,
    ),
    own("tech", f"Comma list of {', '.join(TECHNIQUES)}. [default: those of the place]", short=True, group=TENANTS),
    own("tenants", "Comma list: tenants at a time.", _TENANTS, short=True, show_default=True, group=TENANTS),
    declared(
        "workload",
        help="What each tenant runs. [default: yolos-small; micro:operation behind the proxy]",
        default="",
        show_default=False,
    ),
    declared(
        "engine", help="onnx, torch, tinygrad, synthetic or driver, with :KEY=VALUE,… [default: onnx; proxy: tinygrad]"
    ),
    declared("device"),
    declared("precision"),
    declared("threads", help="CPU threads of each. [default: its share]"),
    declared("weights"),
    declared("libcuda"),
    declared("batch", short=False),
    own("repeats", "Repeats, each with new processes.", 5, least=1, show_default=True, short=True, group=TENANTS),
    own("window", "How long all tenants run together. [default: 10s; 2s beside neighbours]", group=TENANTS),
    own("warmup", "Warm-up that is dropped before that.", "2s", show_default=True, group=TENANTS),
    own("slices", "Parts of the device. [default: most tenants]", 0, least=0, group=TENANTS),
    declared("seed"),
    own("proxy-memory-mb", "bare, proxy: memory quota of a tenant.", 0, least=0, group=TENANTS),
    own("prometheus", "Compare the mean with what Prometheus reports.", metavar="URL", group=TENANTS),
    own("victim", "Scenario of the tenant that is measured beside neighbours: single-stream.", group=TENANTS),
    own("aggressor", f"Its neighbours, one after the other: {', '.join(KINDS)}.", short=True, group=TENANTS),
    own(
        "shares",
        "Compare the share of the device that each tenant asks for with what it obtains, e.g. 30,70 or 1/3.",
        short=True,
        metavar="LIST",
        group=TENANTS,
    ),
    own("tolerance", "With --shares: how far from the asked share is a pass. [default: 5%]", group=TENANTS),
    own("in-flight", "With --shares: runs that each tenant keeps in flight. [default: 4]", 0, least=0, group=TENANTS),
    declared("out", help="Result directory. [default: results/share-ENV-TIME, or the unfinished one]"),
    declared("overwrite"),
    declared("stall-timeout"),
    declared("wait-quiet"),
    declared("accept-disturbed"),
    declared("dry-run"),
    as_json("Write the record to stdout instead of the tables."),
)
@model_options
@server_options
@place_options
@variable_options
def share(
    place: str, victim: str, aggressor: str, out: str, overwrite: bool, stall_timeout: float, wait_quiet: float,
    accept_disturbed: bool, dry_run: bool, as_json: bool, options: EnvironmentOptions, **chosen: Any,
) -> int:  # fmt: skip
    """Let tenants share a device: latency, throughput and fairness by technique and number of tenants.

    Each cell is written when it ends; after an interrupt the same command resumes.
    """
    plan = share_plan(place, {**chosen, "aggressor": aggressor})
    aggressors = _aggressors(victim, aggressor)
    victim = scenario_named(victim, "victim", VICTIMS) if victim else VICTIMS[0]
    _refuse_ignored(plan, options, chosen)
    if dry_run:
        return _show_plan(plan, victim, aggressors, as_json)
    if note := engine_note(plan.setup.engine, chosen["engine"]):
        click.echo(f"gputax: {note}", err=True)
    # Imported here: numpy, pydantic and rich are not needed to refuse a wrong command line.
    from gputax import api
    from gputax.cli.progress import Progress, look_first

    directory = api.share_directory(plan, out, aggressors=aggressors, victim=victim)
    with Progress(sys.stderr) as view:
        look_first(view, (place,), wait_quiet=wait_quiet, accept_disturbed=accept_disturbed, options=options)
        record = api.share(
            plan,
            aggressors=aggressors,
            victim=victim,
            out=directory,
            overwrite=overwrite,
            optional=not chosen["tech"],
            stall_timeout_s=stall_timeout,
            prometheus=chosen["prometheus"],
            proxy_memory_mb=chosen["proxy_memory_mb"],
            accept_disturbed=accept_disturbed,
            options=options,
            view=view,
            command=command_text(),
        )
    _show(record, directory, as_json)
    return exit_code(record, accept_disturbed)


def exit_code(record: SharingRecord, accept_disturbed: bool) -> int:
    """Return what a pipeline must know: cells failed, a wall did not hold, or something was not proven."""
    broken = {f"{row.technique}-crash" for row in record.isolation if row.passed is False and "crash" in row.check}
    if any(failure.cell not in broken for failure in record.failures):
        return EXIT_CELLS_FAILED
    if any(row.passed is False for row in record.isolation) or any(row.verdict == "fail" for row in record.obtained):
        return EXIT_NOT_ISOLATED
    measured: tuple[SharedCell | NeighbourRow, ...] = (*record.cells, *record.neighbours)
    usable = all(each.valid and (accept_disturbed or not each.disturbed) for each in measured)
    if not usable:
        return EXIT_INVALID
    return EXIT_UNDECIDED if any(row.verdict in UNDECIDED for row in record.obtained) else 0


def share_plan(place: str, chosen: dict[str, Any]) -> SharePlan:
    """Return the plan of a command line, or refuse it."""
    from gputax import api
    from gputax.api.sharing import OPERATION

    workload = chosen["workload"]
    given = names(workload, "workload", known_names(tuple(WORKLOADS)), WORKLOAD_SYNONYMS) if workload else ("",)
    if len(given) != 1:
        raise UsageError("all tenants run one workload", next_step=f"e.g. --workload {OPERATION}")
    return api.share_plan(
        place,
        techniques=names(chosen["tech"], "tech", TECHNIQUES, SYNONYMS) if chosen["tech"] else (),
        tenants=counts(chosen["tenants"], "tenants", _TENANTS),
        workload=given[0],
        window_s=seconds(chosen["window"], "--window", "10s") if chosen["window"] else None,
        warmup_s=seconds(chosen["warmup"], "--warmup", "2s"),
        beside_neighbours=bool(chosen.get("aggressor")),
        **_shares(chosen),
        own=chosen.get("own"),
        **{
            key: chosen[key]
            for key in (
                "engine", "device", "precision", "threads", "weights", "libcuda", "batch", "repeats", "slices", "seed",
            )
        },
    )  # fmt: skip


def _shares(chosen: dict[str, Any]) -> dict[str, Any]:
    """Return what was said about shares; without them, the other two options are refused."""
    if not chosen.get("shares"):
        for name in ("tolerance", "in_flight"):
            if chosen.get(name):
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} is about shares that tenants ask for", next_step="add --shares 30,70")
        return {}
    if chosen.get("aggressor"):
        raise UsageError("--shares has neighbours of its own", next_step="drop --aggressor, or --shares")
    tolerance = percentage(chosen["tolerance"], "--tolerance", "5%") if chosen["tolerance"] else None
    return {
        "shares": parse_shares(chosen["shares"]),
        "tolerance_percent": tolerance,
        "in_flight": chosen["in_flight"] or None,
    }


def _aggressors(victim: str, aggressor: str) -> tuple[str, ...]:
    if victim and not aggressor:
        scenario_named(victim, "victim", VICTIMS)
        raise UsageError("--victim needs a neighbour to measure beside", next_step=f"--aggressor {','.join(KINDS)}")
    return names(aggressor, "aggressor", KINDS) if aggressor else ()


def _refuse_ignored(plan: SharePlan, options: EnvironmentOptions, chosen: dict[str, Any]) -> None:
    """Refuse options that nobody would look at, and an address where no Prometheus can be."""
    if plan.place == "bare":
        _refuse_options_of_a_cluster(options, chosen["threads"])
    if chosen["proxy_memory_mb"] and (plan.place != "bare" or "proxy" not in plan.techniques):
        raise UsageError(
            "--proxy-memory-mb applies to the GPU proxy of this machine, which was not requested",
            next_step="add --env bare --tech proxy, or drop it",
        )
    if chosen["prometheus"]:
        _refuse_address(chosen["prometheus"])


def _refuse_options_of_a_cluster(options: EnvironmentOptions, threads: int) -> None:
    default = EnvironmentOptions(cpus=threads)  # CPUs that are not named follow the threads
    for field in dataclasses.fields(options):
        if getattr(options, field.name) not in (getattr(default, field.name), field.default):
            name = PLACE_OPTIONS[field.name].name
            raise UsageError(
                f"--{name} applies to a container or a cluster; the environment bare has neither",
                next_step="add --env k8s, or drop it",
            )


def _refuse_address(url: str) -> None:
    try:
        address = urlsplit(url)
        usable = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:  # a port that is not a number, half of an IPv6 address
        usable = False
    if not usable:
        raise UsageError(
            f"--prometheus {url!r} is not an http address", next_step="e.g. --prometheus http://localhost:9090"
        )


def _show_plan(plan: SharePlan, victim: str, aggressors: tuple[str, ...], as_json: bool) -> int:
    """Show the parts of the experiment in their order; measure nothing."""
    from gputax.cli.progress import cell_title, expected_s
    from gputax.worker.probes.limits import cpu_allowance

    cores = cpu_allowance().threads
    if aggressors:
        from gputax.measure.neighbours.record import shown_cells

        cells = shown_cells(plan, victim, len(aggressors))
        parts = [f"{name}-{part}" for name in plan.techniques for part in (*aggressors, "isolation")]
        at_least_s = sum(map(expected_s, cells))
    else:
        from gputax.measure.share.documents import shown_cell

        cells = tuple(shown_cell(plan, cell, cores) for cell in plan.cells())
        parts = [cell.id for cell in plan.cells()]
        at_least_s = len(cells) * (plan.warmup_s + plan.window_s)
    total_s = sum(map(expected_s, cells))
    if as_json:
        times = {"at_least_s": round(at_least_s, 1), "expected_s": round(total_s, 1)}
        click.echo(json.dumps({"cells": parts, **times, "plan": dataclasses.asdict(plan)}, indent=2))
        return 0
    from gputax.report.exporters.console_text import Screen
    from gputax.report.machine_tables import planned_table

    screen = Screen(sys.stdout)
    planned = [(part, cell_title(cell), expected_s(cell)) for part, cell in zip(parts, cells, strict=True)]
    screen.table(planned_table(planned))
    if aggressors or not all(TECHNIQUES[name].stand_in for name in plan.techniques):
        time = f"at least {duration(total_s)}, without starting workers and switching the device"
    else:
        time = f"about {duration(total_s)} on {counted(cores, 'idle core')}, estimated from the size of the model"
    screen.say(f"{counted(len(cells), 'cell')}, {time}. Nothing was measured.")
    return 0


def _show(record: SharingRecord, directory: Path, as_json: bool) -> None:
    if as_json:
        click.echo(record.model_dump_json(indent=2))
        return
    from gputax.report.output import show_results

    show_results(directory, sys.stdout)
