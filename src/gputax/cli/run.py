"""`gputax run`: plan the cells, run them, show the table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gputax.cli.environment_options import environment_options
from gputax.cli.lists import AtLeast, counts, names
from gputax.errors import UsageError, unknown_name
from gputax.places import ENVIRONMENTS, refuse_unknown
from gputax.plan.cells import DEVICES, PRECISIONS, SCENARIOS, Cell, plan_id
from gputax.plan.engines import ENGINES, parse_engine
from gputax.plan.micro import MICRO, known_names
from gputax.plan.options import EnvironmentOptions
from gputax.plan.suites import Choices, Suite, load_suite, plan_cells
from gputax.plan.workloads import WORKLOADS

if TYPE_CHECKING:
    from gputax.results.documents.run import RunRecord

EXIT_CELLS_FAILED = 4
EXIT_INVALID = 5


@click.command()
@click.option(
    "--env", "environment", default="bare", show_default=True, help=f"Where the worker runs: {', '.join(ENVIRONMENTS)}."
)
@click.option(
    "--workload", default="resnet50", show_default=True, help=f"Comma list of {', '.join(WORKLOADS)}, {MICRO}."
)
@click.option("--scenario", default="", help=f"Comma list of {', '.join(SCENARIOS)}. [default: the suite's]")
@click.option("--batch", default="", help="Comma list of batch sizes (offline), largest batches (server).")
@click.option("--suite", default="quick", show_default=True, help="quick, standard, mlperf, or a TOML file of yours.")
@click.option(
    "--engine", default="", help="onnx, torch, synthetic or driver, with :KEY=VALUE,… [default: onnx; micro: driver]"
)
@click.option(
    "--device", default="auto", show_default=True, help="auto, cpu, cuda, software; never replaced in silence."
)
@click.option(
    "--libcuda", default="", metavar="PATH", help="micro: another driver library, as a file or its directory."
)
@click.option("--precision", default="fp32", show_default=True, help="fp32, or fp16 where the device has it.")
@click.option("--threads", default=0, type=click.IntRange(0, 1024), help="CPU threads. [default: affinity and quota]")
@click.option(
    "--weights",
    default="",
    help="Your own ONNX file, or `official` after `gputax models fetch`. [default: seeded]",
)
@click.option("--dataset", default="", help="ImageNet-style folder with val_map.txt instead of synthetic inputs.")
@click.option("--qps", default=0.0, type=AtLeast(0), help="Server: arrivals per second. [default: found]")
@click.option("--find-peak", is_flag=True, help="Server: find the highest valid rate, with repeated probes.")
@click.option(
    "--bound-ms",
    default=0.0,
    type=AtLeast(0),
    help="Server: latency bound of the suite's percentile. [default: workload's]",
)
@click.option("--max-wait-us", default=0, type=click.IntRange(0), help="Server: how long the batcher may wait.")
@click.option("--seed", default=7, show_default=True, type=click.IntRange(0), help="Seed of weights and inputs.")
@click.option("--out", default="", help="Result directory. [default: results/ENV-TIME, or the unfinished one]")
@click.option("--overwrite", is_flag=True, help="Measure again into a directory that holds results.")
@click.option("--stall-timeout", default=0.0, type=AtLeast(0), help="End a worker silent for so many seconds.")
@click.option("--dry-run", is_flag=True, help="Show the cells and about how long they take; measure nothing.")
@click.option("--json", "as_json", is_flag=True, help="Write the run record to stdout instead of the table.")
@click.option("--result-block", is_flag=True, help="End with the block that `gputax compare` reads in a log.")
@environment_options
def run(
    environment: str, workload: str, scenario: str, batch: str, suite: str, out: str, overwrite: bool,
    stall_timeout: float, dry_run: bool, as_json: bool, result_block: bool, options: EnvironmentOptions, **chosen: Any,
) -> int:  # fmt: skip
    """Measure inference in an environment: LoadGen's scenarios on real models, results on disk.

    Each cell is written when it ends; after an interrupt the same command resumes.
    """
    named_suite = load_suite(suite)
    cells = plan_cells(named_suite, _choices(environment, workload, scenario, batch, named_suite, chosen))
    if dry_run:
        return _show_plan(cells, as_json)
    directory = _directory(cells, environment, out)
    record = _execute(cells, directory, overwrite, stall_timeout, options)
    _show(record, directory, as_json, result_block)
    if record.failures:
        return EXIT_CELLS_FAILED
    return 0 if all(benchmark.valid for benchmark in record.benchmarks) else EXIT_INVALID


def _choices(
    environment: str, workload: str, scenario: str, batch: str, suite: Suite, chosen: dict[str, Any]
) -> Choices:
    refuse_unknown(environment)
    if chosen["device"] not in DEVICES:
        raise unknown_name("device", chosen["device"], DEVICES)
    if chosen["precision"] not in PRECISIONS:
        raise unknown_name("precision", chosen["precision"], PRECISIONS)
    if chosen["engine"]:
        parse_engine(chosen["engine"])
    scenarios = names(scenario, "scenario", SCENARIOS) if scenario else suite.scenarios
    _refuse_contradictions(scenarios, workload, batch, chosen)
    setup_keys = ("engine", "device", "precision", "threads", "weights", "dataset", "seed", "libcuda")
    paths = ("weights", "dataset", "libcuda")
    load_keys = ("qps", "find_peak", "bound_ms", "max_wait_us")
    return Choices(
        workloads=names(workload, "workload", known_names(tuple(WORKLOADS))),
        scenarios=scenarios if scenario else (),
        batches=counts(batch, "batch") if batch else (),
        environment=environment,
        setup={key: _absolute(chosen[key]) if key in paths else chosen[key] for key in setup_keys},
        load={key: chosen[key] for key in load_keys if chosen[key]},
    )


def _absolute(path: str) -> str:
    """The worker may start elsewhere, so a path is sent whole."""
    return str(Path(path).expanduser().resolve()) if path and path != "official" else path


def _refuse_contradictions(scenarios: tuple[str, ...], workload: str, batch: str, chosen: dict[str, Any]) -> None:
    if chosen["qps"] and chosen["find_peak"]:
        raise UsageError("--qps gives a rate and --find-peak searches one", next_step="use one of them")
    server_only = [key for key in ("qps", "find_peak", "bound_ms", "max_wait_us") if chosen[key]]
    if server_only and "server" not in scenarios:
        option = "--" + server_only[0].replace("_", "-")
        raise UsageError(
            f"{option} is for the server scenario, which is not asked for", next_step="add --scenario server"
        )
    if batch and not {"offline", "server", "saturate"} & set(scenarios):
        raise UsageError(
            f"--batch has no meaning for {', '.join(scenarios)}",
            next_step="drop it, or add --scenario offline",
        )
    if chosen["weights"] and "," in workload:
        raise UsageError("--weights is one model's file, but several workloads are named")
    if chosen["weights"] and not ENGINES[parse_engine(chosen["engine"] or "onnx").name].takes_weights:
        raise UsageError("--weights takes an ONNX file, which only --engine onnx can run")


def _show_plan(cells: tuple[Cell, ...], as_json: bool) -> int:
    from gputax.cli.views import cell_title, expected_s

    if as_json:
        import json

        click.echo(json.dumps([cell.to_dict() for cell in cells], indent=2))
        return 0
    for cell in cells:
        click.echo(f"{cell_title(cell):<60} at least {expected_s(cell):5.0f} s")
    total_s = sum(expected_s(cell) for cell in cells)
    click.echo(f"{len(cells)} cells, at least {total_s:.0f} s; a slow device takes longer, because a stream or server")
    click.echo("needs 64 queries and offline 5 batches. Nothing was measured.")
    return 0


def _directory(cells: tuple[Cell, ...], environment: str, out: str) -> Path:
    from gputax.results.store import default_directory

    return Path(out) if out else default_directory(Path("results"), environment, plan_id(cells))


def _execute(
    cells: tuple[Cell, ...], directory: Path, overwrite: bool, stall_timeout: float, options: EnvironmentOptions
) -> RunRecord:
    # Imported here: pydantic, numpy and rich are not needed to refuse a wrong command line.
    from gputax.cli.views import view_for
    from gputax.measure.run.execution import Run

    with view_for(sys.stderr) as view:
        return Run(
            cells, directory, view, overwrite=overwrite, stall_timeout_s=stall_timeout, options=options
        ).execute()


def _show(record: RunRecord, directory: Path, as_json: bool, result_block: bool) -> None:
    from gputax.results.importers import pod_log

    if as_json:
        click.echo(record.model_dump_json(indent=2))
    else:
        from gputax.cli.results import show_results

        show_results(directory)
    if result_block:
        sys.stderr.flush()
        click.echo(pod_log.result_block(record), nl=False)
