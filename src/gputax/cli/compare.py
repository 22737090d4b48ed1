"""`gputax compare`: results already on disk against each other."""

from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

import click

from gputax.cli.duet import exit_code
from gputax.errors import UsageError, unknown_name
from gputax.plan.suites import wanted_budgets

if TYPE_CHECKING:
    from gputax.results.documents.comparison import Comparison

FORMATS = ("table", "markdown", "html", "json")
COMPARISON_NAME = "comparison.json"
# Not even --overwrite lets a comparison take the place of what was measured.
RESULT_FILES = (
    "benchmark_results.json",
    "environment.json",
    "events.jsonl",
    "mlperf_log_detail.txt",
    "mlperf_log_summary.txt",
)
_FORMAT_OF_SUFFIX = {".html": "html", ".md": "markdown", ".json": "json", ".txt": "table"}


@click.command()
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("others", nargs=-1, required=True, metavar="OTHER...", type=click.Path(path_type=Path))
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    help="5%, latency_p99=2ms or proxy=3%; may be repeated. [default: the layer's own, and p99 +2 ms]",
)
@click.option("--suite", default="", metavar="NAME|FILE", help="Suite that supplies the budgets not set with --budget.")
@click.option("--format", "format_name", type=click.Choice(FORMATS), help="[default: table, or by the suffix of --out]")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--out", type=click.Path(path_type=Path), help="File, or directory for comparison.json.")
@click.option("--overwrite", is_flag=True, help="Overwrite the file that --out names.")
@click.option("--force", is_flag=True, help="Show numbers of cells that are not comparable; they stay marked.")
def compare(
    base: Path,
    others: tuple[Path, ...],
    budgets: tuple[str, ...],
    suite: str,
    format_name: str | None,
    as_json: bool,
    out: Path | None,
    overwrite: bool,
    force: bool,
) -> int:
    """Compare results on disk: what does each OTHER cost over BASE?

    Reads our result directories, LoadGen's output, older benchmark_results.json, texts such as `Throughput: 6,977
    ops/sec`, and saved pod logs. Unpaired, so weaker than `gputax duet`. Exit code 0: all pass; 6: a budget is
    exceeded; 7: something is inconclusive, not comparable or was not measured.
    """
    wanted = wanted_budgets(budgets, suite)
    format_name = _format(format_name, as_json, out)
    files = _files(out, format_name)
    _refuse_overwriting(files, (base, *others), overwrite)
    # Imported here: numpy, pydantic and pyarrow are not needed to refuse a wrong command line.
    from gputax.compare.document import compare_sources
    from gputax.results.importers.detect import read_source

    first, *rest = (read_source(path) for path in (base, *others))
    options = [word for text in budgets for word in ("--budget", text)]
    options += ["--suite", suite] * bool(suite) + ["--force"] * force
    command = shlex.join(["gputax", "compare", str(base), *map(str, others), *options])
    comparison = compare_sources(first, rest, wanted, force=force, command=command)
    for path, kind in files.items():
        _write(comparison, kind, path, overwrite)
        click.echo(f"written: {path}", err=True)
    _show(comparison, format_name if out is None or format_name == "json" else "table")
    return exit_code(comparison)


def _format(format_name: str | None, as_json: bool, out: Path | None) -> str:
    if as_json and format_name not in (None, "json"):
        raise UsageError(f"--json and --format {format_name} contradict each other", next_step="use one of them")
    if as_json:
        return "json"
    if format_name:
        return format_name
    if out is None or out.is_dir() or not out.suffix:
        return "table"
    # A file of results is refused later, for what it is.
    if out.suffix.lower() not in _FORMAT_OF_SUFFIX and out.name not in RESULT_FILES:
        raise unknown_name("kind of report", out.suffix, _FORMAT_OF_SUFFIX)
    return _FORMAT_OF_SUFFIX.get(out.suffix.lower(), "table")


def _files(out: Path | None, format_name: str) -> dict[Path, str]:
    """Return what is written, and as what; a directory always gets the document, so that reports can be rebuilt."""
    if out is None:
        return {}
    if out.is_dir() or not out.suffix:
        reports = {"markdown": "comparison.md", "html": "report.html"}
        report = {out / reports[format_name]: format_name} if format_name in reports else {}
        return {out / COMPARISON_NAME: "json", **report}
    by_suffix = _FORMAT_OF_SUFFIX.get(out.suffix.lower(), format_name)
    # A text may hold any of them.
    if by_suffix != format_name and by_suffix != "table":
        raise UsageError(
            f"--out {out.name} does not fit the format {format_name}", next_step="drop --format, or rename --out"
        )
    return {out: format_name}


def _refuse_overwriting(files: Iterable[Path], inputs: Sequence[Path], overwrite: bool) -> None:
    for path in files:
        if path.name in RESULT_FILES or path.resolve() in [each.resolve() for each in inputs]:
            raise UsageError("a comparison is not written over results", where=str(path), next_step="another --out")
        if path.exists() and not overwrite:
            raise UsageError(
                "this file already exists", where=str(path), next_step="choose another --out, or add --overwrite"
            )


def _show(comparison: Comparison, format_name: str) -> None:
    if format_name == "table":
        _write_table(comparison, sys.stdout)
    elif format_name == "json":
        click.echo(_json(comparison), nl=False)
    else:
        from gputax.report.output import report_text
        from gputax.report.story import report_on

        click.echo(report_text(report_on(comparison), _report_format(format_name)), nl=False)


def _write(comparison: Comparison, format_name: str, path: Path, overwrite: bool) -> None:
    from gputax.results.files import write_text

    if format_name == "json":
        write_text(path, _json(comparison))
    elif format_name == "table":
        stream = io.StringIO()
        _write_table(comparison, stream)
        write_text(path, stream.getvalue())
    else:
        from gputax.report.output import save_report
        from gputax.report.story import report_on

        save_report(report_on(comparison), _report_format(format_name), path, overwrite=overwrite)


def _write_table(comparison: Comparison, stream: TextIO) -> None:
    from gputax.report.comparison_tables import not_judged
    from gputax.report.exporters.console_text import Screen, write_console
    from gputax.report.story import report_on

    write_console(report_on(comparison), stream, "screen")
    Screen(stream).notes(not_judged(comparison))


def _report_format(format_name: str) -> Literal["html", "markdown"]:
    return "html" if format_name == "html" else "markdown"


def _json(comparison: Comparison) -> str:
    return comparison.model_dump_json(indent=2) + "\n"
