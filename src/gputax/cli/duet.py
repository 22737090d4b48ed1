"""`gputax duet`: two environments measured in fine alternation, judged as pairs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gputax.cli.export import EXPORT, wanted_exports, write_exports
from gputax.cli.options import (
    Verb,
    as_json,
    command_text,
    complete_environment,
    model_options,
    names,
    options,
    own,
    percentage,
    place_options,
    program_options,
    server_options,
    variable_options,
)
from gputax.errors import Interrupted
from gputax.plan.cells import SCENARIOS
from gputax.plan.driver import engine_note
from gputax.plan.options import BUDGET_SUITE, PLACE, SETUP, VERDICT, declared
from gputax.plan.workloads import SYNONYMS, WORKLOADS, known_names

if TYPE_CHECKING:
    from gputax.results.documents.comparison import Comparison

EXIT_DISTURBED = 5
EXIT_BUDGET_EXCEEDED = 6
EXIT_INCONCLUSIVE = 7
# A cell that failed or is still missing cannot pass with the others.
LACKING = ("unfinished", "failed-cell", "skipped-file")


@click.command(cls=Verb)
@click.argument("a", shell_complete=complete_environment)
@click.argument("b", shell_complete=complete_environment)
@options(
    declared("workload"),
    declared("scenario", help=f"One of {', '.join(SCENARIOS)}.", default="single-stream", show_default=True),
    declared("batch", help="Batch of offline and saturate.", short=False),
    declared("engine", help="Engine of both sides, with :KEY=VALUE,… [default: onnx; micro: driver; proxy: tinygrad]"),
    own("engine-b", "Another engine for B, to measure the difference between engines.", group=SETUP),
    declared("device"),
    declared("libcuda"),
    declared("precision"),
    declared("threads"),
    declared("weights"),
    declared("budget"),
    BUDGET_SUITE,
    own("width", "Stop at this half-width of the interval, e.g. 1%. [default: at a clear verdict]", group=VERDICT),
    own("max-time", "Time limit in seconds, A/A included.", 120.0, short=True, least=5, show_default=True),
    own("control", "Measure A against a second A as well.", True, negation="no-control", group=VERDICT),
    own(
        "gate", "Refuse a budget below this machine's noise: A/A first, for a fifth of the time.", False, group=VERDICT
    ),
    declared("seed"),
    declared("stall-timeout"),
    declared("wait-quiet"),
    declared("accept-disturbed"),
    declared("out", help="Result directory. [default: results/duet-A-B-TIME]"),
    EXPORT,
    as_json("Write the comparison to stdout instead of the table."),
    own(
        "for-a",
        "A placement option for A only, e.g. cpus=2.",
        None,
        group=PLACE,
        multiple=True,
        metavar="KEY=VALUE",
    ),
    own("for-b", "The same for B, e.g. image=gputax:next.", None, group=PLACE, multiple=True, metavar="KEY=VALUE"),
)
@program_options
@model_options
@server_options
@place_options
@variable_options
def duet(
    a: str, b: str, workload: str, width: str, max_time: float, stall_timeout: float, wait_quiet: float, out: str,
    as_json: bool, gate: bool, exports: tuple[str, ...], **chosen: Any,
) -> int:  # fmt: skip
    """Measure what B costs over A: pairs in random order, an interval, and a verdict against the budget.

    Exits with 0 (pass), 3 (--gate: the budget is below the noise), 5 (the machine was disturbed), 6 (over budget) or 7
    (undecided).
    """
    from gputax import api
    from gputax.places import refuse_unknown

    wanted = wanted_exports(exports)
    for name in (a, b):
        refuse_unknown(name)
    request = api.duet_request(
        a,
        b,
        workload=names(workload, "workload", known_names(tuple(WORKLOADS)), SYNONYMS),
        width_percent=percentage(width, "--width", "1%") if width else None,
        max_time_s=max_time,
        stall_timeout_s=stall_timeout,
        command=command_text(),
        **chosen,
    )
    for notice in request.notices:
        click.echo(f"gputax: {notice.text}", err=True)
    if note := engine_note(request.a.setup.engine, chosen["engine"]):
        click.echo(f"gputax: {note}", err=True)
    # Imported here: numpy and pydantic are not needed to refuse a wrong command line.
    from gputax.cli.progress import Progress, look_first
    from gputax.measure.duet.pairs import INTERRUPTED

    directory = Path(out) if out else api.duet_directory(a, b)
    with Progress(sys.stderr, max_time) as progress:
        look_first(
            progress, (a, b), wait_quiet=wait_quiet, accept_disturbed=chosen["accept_disturbed"],
            options=chosen["options"],
        )  # fmt: skip
        if gate:
            api.gate(request, say=progress.say, on_pair=progress.pair)
        comparison = api.duet(request, out=directory, say=progress.say, on_pair=progress.pair)
    write_exports(wanted, comparison, str(directory))
    if as_json:
        click.echo(comparison.model_dump_json(indent=2))
    else:
        from gputax.report.output import show_results

        show_results(directory, sys.stdout)
    if any(warning.code == INTERRUPTED for warning in comparison.warnings):
        return Interrupted.exit_code
    if comparison.disturbed and not chosen["accept_disturbed"]:
        return EXIT_DISTURBED
    return exit_code(comparison)


def exit_code(comparison: Comparison) -> int:
    """Return 0 only where everything that decides passes; what was refused and is named by no budget does not."""
    verdicts = {row.verdict for row in comparison.metrics if row.decides}
    if "fail" in verdicts:
        return EXIT_BUDGET_EXCEEDED
    lacking = any(warning.code in LACKING for warning in comparison.warnings)
    return 0 if verdicts == {"pass"} and not lacking else EXIT_INCONCLUSIVE
