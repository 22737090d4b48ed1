"""`gputax selftest`: a driver directly and behind the GPU proxy, compared answer by answer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gputax.cli.options import Verb, as_json, command_text, listed, options, own, variable_options
from gputax.plan.options import declared

if TYPE_CHECKING:
    from gputax.results.documents.selftest import SelftestRecord

EXIT_DIFFERENT = 4


@click.command(cls=Verb)
@options(
    declared("device", help="cuda or software; fails instead of falling back to another device.", default="cuda"),
    own("quick", "Leave out the models and the duets.", False, short=True),
    own("only", "Only these groups of questions, e.g. copies,graphs; no duets.", short=True, metavar="GROUPS"),
    own("model", "Only these models, e.g. resnet50. [default: all; software device: resnet50]", metavar="NAMES"),
    own("duet-time", "Time limit of each duet in seconds.", 60.0, least=5, show_default=True),
    own("cudart", "The runtime library for the prebuilt program. [default: the installed one]", metavar="FILE"),
    declared("libcuda", help="Another driver library, as a file or its directory."),
    declared("out", help="Result directory. [default: results/selftest-TIME]"),
    as_json("Write the record to stdout instead of the screen."),
)
@variable_options
def selftest(
    device: str, quick: bool, only: str, model: str, duet_time: float, cudart: str, libcuda: str, out: str,
    as_json: bool,
) -> int:  # fmt: skip
    """Compare the driver with libvgpu and the GPU proxy: answers, programs, models, duets. For a day with a GPU.

    Leaves one directory to send. Exits with 0 (equal), 3 (nothing can be compared here) or 4 (something differs).
    """
    from gputax import api
    from gputax.cli.progress import Line

    line = Line(sys.stderr)
    directory = Path(out) if out else api.selftest_directory()

    def live(text: str) -> None:
        if line.terminal and line.due(0.0):
            line.show(text)

    record = api.selftest(
        device,
        libcuda=libcuda,
        cudart=cudart,
        quick=quick,
        only=listed(only, "only") if only else (),
        models=listed(model, "model") if model else (),
        duet_s=duet_time,
        out=directory,
        say=live,
        on_step=lambda text: line.show(f"gputax: {text}"),
        command=command_text(),
    )
    line.clear()
    if as_json:
        click.echo(record.model_dump_json(indent=2))
    else:
        _show(record, directory)
    return 0 if record.equal else EXIT_DIFFERENT


def _show(record: SelftestRecord, directory: Path) -> None:
    from gputax.report.exporters.console_text import Screen
    from gputax.report.selftest import device_line, groups_table, headline, screen_lines

    screen = Screen(sys.stdout)
    screen.say(headline(record), "bold")
    screen.say(device_line(record))
    screen.say("")
    screen.table(groups_table(record))
    screen.say("")
    for text in screen_lines(record, str(directory)):
        screen.say(text, hang=2)
