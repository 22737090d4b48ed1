"""`gputax report`: rebuild the answer from results on disk, for a terminal, a browser or a program."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gputax.cli.options import Verb, as_json, options, own
from gputax.errors import UsageError, unknown_name
from gputax.plan.options import OUTPUT, declared

if TYPE_CHECKING:
    from gputax.report.model import Report
    from gputax.report.output import Format

# As in report.output; repeated so that --help imports neither numpy nor pydantic.
FORMATS: tuple[Format, ...] = (
    "html", "markdown", "json", "csv", "table", "svg", "junit", "summary", "benchmark", "openmetrics",
)  # fmt: skip


@click.command(cls=Verb)
@click.argument("directories", metavar="DIR...", nargs=-1, required=True)
@options(
    declared("out", help="File to write, or - for stdout. [default: html in DIR/report.html, else stdout]"),
    own("format", f"One of {', '.join(FORMATS)}. [default: that of --out, else html]", key="kind", group=OUTPUT),
    as_json("The same as --format json."),
    declared("overwrite", help="Replace a file that is not a report of gputax."),
)
def report(directories: tuple[str, ...], out: str, kind: str, as_json: bool, overwrite: bool) -> int:
    """Report on runs, comparisons and sharing experiments: from their files alone, offline.

    DIR is a result directory, a directory of result directories, or a comparison's file. Name several to see them
    together: runs bring distributions and telemetry, comparisons bring verdicts. Two or more texts, logs or results of
    other tools (FILE or k8s=FILE) are compared with each other, as by `gputax compare`. A report of gputax is rewritten
    in place; any other file stays. With several DIRs report.html goes into the present directory. svg is the first
    chart of the page alone. junit, summary (Markdown), benchmark (JSON) and openmetrics are for CI.
    """
    chosen = _format(kind, as_json, out)
    from gputax import api

    built = api.build_report(*directories)
    if out == "-" or (not out and chosen != "html"):
        return _print(built, chosen)
    return _save(built, chosen, Path(out) if out else api.report_path(directories), overwrite)


def _format(kind: str, as_json: bool, out: str) -> Format:
    if as_json and kind not in ("", "json"):
        raise UsageError(f"--json and --format {kind} contradict each other", next_step="use one of them")
    chosen = next((known for known in FORMATS if known == ("json" if as_json else kind)), None)
    if kind and chosen is None:
        raise unknown_name("format", kind, FORMATS)
    if not out or out == "-" or (chosen and not Path(out).suffix):
        return chosen or "html"
    from gputax.report.output import format_of

    by_name = format_of(Path(out))
    return chosen or by_name


def _print(built: Report, kind: Format) -> int:
    from gputax.report.exporters.console_text import write_console
    from gputax.report.output import report_text

    if kind == "table":
        write_console(built, sys.stdout)
    else:
        click.echo(report_text(built, kind), nl=False)
    return 0


def _save(built: Report, kind: Format, path: Path, overwrite: bool) -> int:
    from gputax import api
    from gputax.report.exporters.console_text import write_console
    from gputax.report.svg import charts_available

    if kind in ("html", "markdown") and not charts_available():
        click.echo("gputax: without charts: vl-convert-python is not installed", err=True)
    written = api.report(built, out=path, kind=kind, overwrite=overwrite)
    write_console(built, sys.stdout, "answer")
    for file in written:
        click.echo(f"Report: {file} ({file.stat().st_size / 1024:.0f} KB)")
    return 0
