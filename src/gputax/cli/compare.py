"""`gputax compare`: results already on disk against each other."""

from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from gputax.cli.duet import exit_code
from gputax.cli.export import EXPORT, wanted_exports, write_exports
from gputax.cli.options import Verb, as_json, options, own, words_given
from gputax.cli.report import FORMATS as REPORT_FORMATS
from gputax.errors import UsageError, unknown_name
from gputax.plan.options import BUDGET_SUITE, OUTPUT, VERDICT, declared
from gputax.plan.suites import wanted_budgets

if TYPE_CHECKING:
    from gputax.report.output import Format
    from gputax.results.documents.comparison import Comparison

FOR_CI = ("junit", "summary", "benchmark", "openmetrics")
FORMATS = ("table", "markdown", "html", "json", *FOR_CI)
COMPARISON_NAME = "comparison.json"
# Not even --overwrite lets a comparison take the place of what was measured.
RESULT_FILES = (
    "benchmark_results.json",
    "environment.json",
    "events.jsonl",
    "mlperf_log_detail.txt",
    "mlperf_log_summary.txt",
)
_FORMAT_OF_SUFFIX = {
    ".html": "html", ".md": "markdown", ".json": "json", ".txt": "table", ".xml": "junit", ".prom": "openmetrics",
}  # fmt: skip
# Formats that share a suffix with another one.
_ALSO_FITS = {("benchmark", ".json"), ("summary", ".md")}


@click.command(cls=Verb)
@click.argument("base")
@click.argument("others", nargs=-1, required=True, metavar="OTHER...")
@options(
    declared(
        "budget", help="5%, p99=2ms, k8s=1% or k8s:p99=1ms; may be repeated. [default: the layer's own; p99 +2 ms]"
    ),
    BUDGET_SUITE,
    own(
        "format", "[default: table, or by the suffix of --out]", None,
        choices=FORMATS, key="format_name", group=OUTPUT,
    ),
    as_json("The same as --format json."),
    declared("out", help="File, or directory for comparison.json.", key="target"),
    declared("overwrite", help="Overwrite the file that --out names."),
    declared("accept-disturbed", help="Judge cells that were measured on a disturbed machine, too."),
    own(
        "spread-from", "A run with --repeats on this machine: its spread serves sides that were measured once.",
        group=VERDICT, metavar="DIRECTORY",
    ),
    EXPORT,
    own("force", "Show numbers of cells that are not comparable; they stay marked.", False, group=VERDICT),
)  # fmt: skip
def compare(
    base: str, others: tuple[str, ...], budgets: tuple[str, ...], suite: str, format_name: str | None, as_json: bool,
    target: str, overwrite: bool, force: bool, accept_disturbed: bool, spread_from: str,
    exports: tuple[str, ...],
) -> int:  # fmt: skip
    """Compare results on disk: what does each OTHER cost over BASE?

    Reads our result directories, LoadGen's output, older benchmark_results.json, texts such as `Throughput: 6,977
    ops/sec`, and saved pod logs. `k8s=FILE` says what a file is, where neither its name nor an `Environment:` line
    does. A file that does not fit is skipped with a warning. Unpaired, so weaker than `gputax duet`. Exit code 0: all
    pass; 6: a budget is exceeded; 7: something is undecided, not comparable, skipped or was not measured.
    """
    wanted_budgets(budgets, suite)  # a wrong budget is refused before anything is read
    wanted = wanted_exports(exports)
    out = Path(target) if target else None
    format_name = _format(format_name, as_json, out)
    files = _files(out, format_name)
    _refuse_overwriting(files, [Path(word.partition("=")[2] or word) for word in (base, *others)], overwrite)
    from gputax import api

    words = [word for text in budgets for word in ("--budget", text)]
    words += ["--suite", suite] * bool(suite) + ["--force"] * force
    words += ["--spread-from", spread_from] * bool(spread_from)
    words += ["--accept-disturbed"] * ("--accept-disturbed" in words_given())
    command = shlex.join(["gputax", "compare", base, *others, *words])
    comparison = api.compare(
        base, *others, budgets=budgets, suite=suite, force=force, accept_disturbed=accept_disturbed,
        spread_from=spread_from, command=command,
    )  # fmt: skip
    for path, kind in files.items():
        _write(comparison, kind, path, overwrite)
        click.echo(f"written: {path}", err=True)
    write_exports(wanted, comparison)
    _show(comparison, format_name if out is None or format_name == "json" else "table")
    return exit_code(comparison)


def _format(format_name: str | None, as_json: bool, out: Path | None) -> str:
    if as_json and format_name not in (None, "json"):
        raise UsageError(f"--json and --format {format_name} contradict each other", next_step="use one of them")
    format_name = "json" if as_json else format_name
    if out is None or out.is_dir() or not out.suffix:
        return format_name or "table"
    # A file of results is refused later, for what it is.
    if out.suffix.lower() not in _FORMAT_OF_SUFFIX and out.name not in RESULT_FILES:
        raise unknown_name("kind of report", out.suffix, _FORMAT_OF_SUFFIX)
    return format_name or _FORMAT_OF_SUFFIX.get(out.suffix.lower(), "table")


def _files(out: Path | None, format_name: str) -> dict[Path, str]:
    """Return what is written, and as what; a directory always gets the document, so that reports can be rebuilt."""
    if out is None:
        return {}
    if out.is_dir() or not out.suffix:
        reports = {
            "markdown": "comparison.md", "html": "report.html", "junit": "junit.xml", "summary": "summary.md",
            "benchmark": "benchmark.json", "openmetrics": "metrics.prom",
        }  # fmt: skip
        report = {out / reports[format_name]: format_name} if format_name in reports else {}
        return {out / COMPARISON_NAME: "json", **report}
    by_suffix = _FORMAT_OF_SUFFIX.get(out.suffix.lower(), format_name)
    # A text may hold any of them.
    if by_suffix != format_name and by_suffix != "table" and (format_name, out.suffix.lower()) not in _ALSO_FITS:
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
        write_table(comparison, sys.stdout)
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
        write_table(comparison, stream)
        write_text(path, stream.getvalue())
    else:
        from gputax.report.output import save_report
        from gputax.report.story import report_on

        save_report(report_on(comparison), _report_format(format_name), path, overwrite=overwrite)


def write_table(comparison: Comparison, stream: TextIO) -> None:
    """Write a comparison as one screen."""
    from gputax.report.comparison_tables import not_judged
    from gputax.report.exporters.console_text import Screen, write_console
    from gputax.report.story import report_on

    write_console(report_on(comparison), stream, "screen")
    Screen(stream).notes(not_judged(comparison))


def _report_format(format_name: str) -> Format:
    return next(known for known in REPORT_FORMATS if known == format_name)


def _json(comparison: Comparison) -> str:
    return comparison.model_dump_json(indent=2) + "\n"
