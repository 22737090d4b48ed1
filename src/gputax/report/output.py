"""Put a report where its reader wants it, and over nothing that we did not write."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Literal, TextIO, get_args

from gputax import __version__
from gputax.errors import ResultsError, UsageError, unknown_name
from gputax.report.exporters.benchmark_text import SIGN as BENCHMARK_SIGN
from gputax.report.exporters.benchmark_text import benchmark_text
from gputax.report.exporters.console_text import Screen, write_console
from gputax.report.exporters.data_text import FIRST_COLUMNS, csv_text, json_text
from gputax.report.exporters.html_page import html_page
from gputax.report.exporters.junit_text import SIGN as JUNIT_SIGN
from gputax.report.exporters.junit_text import junit_text
from gputax.report.exporters.markdown_text import MARKER, markdown_text
from gputax.report.exporters.openmetrics_text import SIGN as OPENMETRICS_SIGN
from gputax.report.exporters.openmetrics_text import openmetrics_text
from gputax.report.exporters.summary_text import summary_text
from gputax.report.model import Report
from gputax.report.sources import read_sources
from gputax.report.story import build_report
from gputax.report.svg import charts_available, standalone_svg
from gputax.results.documents.comparison import COMPARISON_NAME
from gputax.results.documents.run import RECORD_NAME
from gputax.results.documents.sharing import SHARING_NAME
from gputax.results.files import disk_error, write_text

Format = Literal["html", "markdown", "json", "csv", "table", "svg", "junit", "summary", "benchmark", "openmetrics"]
FORMATS: tuple[Format, ...] = get_args(Format)
# The formats of CI systems: they carry verdicts, and so only what was compared.
FOR_CI: dict[Format, Callable[[Report], str]] = {
    "junit": junit_text,
    "summary": summary_text,
    "benchmark": benchmark_text,
    "openmetrics": openmetrics_text,
}
SUFFIXES: dict[str, Format] = {
    ".html": "html",
    ".htm": "html",
    ".md": "markdown",
    ".markdown": "markdown",
    ".json": "json",
    ".csv": "csv",
    ".txt": "table",
    ".svg": "svg",
    ".xml": "junit",
    ".prom": "openmetrics",
}
# Each is in the first lines of what we write; a text table has none.
SIGNS = (
    '<meta name="generator" content="gputax ', MARKER, '"generator": "gputax ', ",".join(FIRST_COLUMNS) + ",",
    JUNIT_SIGN, BENCHMARK_SIGN, OPENMETRICS_SIGN,
)  # fmt: skip
SIGN_BYTES = 2048
# Results themselves are never replaced by a report, not even when asked to.
RESULTS = (RECORD_NAME, COMPARISON_NAME, SHARING_NAME, "environment.json", "events.jsonl", "telemetry.json")


def format_of(path: Path) -> Format:
    """Return the format that a file's name asks for."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise unknown_name("kind of report", suffix or path.name, SUFFIXES)
    return SUFFIXES[suffix]


def report_text(report: Report, kind: Format) -> str:
    """Return the report in one piece; Markdown then has no charts."""
    match kind:
        case "html":
            return html_page(report)
        case "markdown":
            return markdown_text(report)
        case "json":
            return json_text(report)
        case "csv":
            return csv_text(report)
        case "svg":
            return _picture(report)
    if kind in FOR_CI:
        return FOR_CI[kind](report)
    stream = io.StringIO()
    write_console(report, stream)
    return stream.getvalue()


def _picture(report: Report) -> str:
    """Return the first chart alone; without our version, so that the same results always give the same bytes."""
    chart = report.overview.chart
    if chart is None:
        raise ResultsError(
            "nothing to draw: no number was measured",
            where=", ".join(report.sources),
            next_step="--format table says why",
        )
    return standalone_svg(chart, MARKER.removeprefix("<!-- "))


def save_report(report: Report, kind: Format, path: Path, *, overwrite: bool = False) -> tuple[Path, ...]:
    """Write the report, and for Markdown its charts beside it; return what was written, the report first."""
    files = {path: ""}
    if kind == "markdown" and charts_available():
        charts = {chart.name: f"{path.stem}-{chart.name}.svg" for chart in report.charts if chart.headline}
        refuse_foreign([path, *(path.parent / name for name in charts.values())], overwrite=overwrite)
        for chart in report.charts:
            if chart.name in charts:
                comment = f"{MARKER.removeprefix('<!-- ')}, gputax {__version__}"
                files[path.parent / charts[chart.name]] = standalone_svg(chart, comment)
        files[path] = markdown_text(report, charts)
    else:
        refuse_foreign([path], overwrite=overwrite)
        files[path] = report_text(report, kind)
    for file, text in files.items():
        write_text(file, text)
    return tuple(files)


def refuse_foreign(paths: Collection[Path], *, overwrite: bool) -> None:
    """Stop before anything is written over a file that is not a report of ours."""
    for path in paths:
        if path.is_dir():
            raise UsageError("--out is a directory", where=str(path), next_step=f"--out {path / 'report.html'}")
        if path.name in RESULTS or path.suffix == ".parquet":
            raise UsageError("a report is not written over results", where=str(path), next_step="choose another --out")
        if not overwrite and path.exists() and not is_ours(path):
            raise UsageError(
                "the file exists and is not a report of gputax",
                where=str(path),
                next_step="choose another --out, or --overwrite",
            )


def is_ours(path: Path) -> bool:
    """Whether the file is marked as a report, so that it can be overwritten."""
    try:
        with path.open("rb") as file:
            head = file.read(SIGN_BYTES).decode(errors="replace")
    except OSError as error:
        raise disk_error(path, error) from error
    return any(sign in head for sign in SIGNS)


def show_results(directory: Path, stream: TextIO) -> None:
    """Write one screen of what was just measured, as `gputax report --format table` shows it, and where the rest is."""
    screen = Screen(stream)
    try:
        write_console(build_report(read_sources([directory])), stream, "screen")
    except ResultsError as error:  # nothing was measured: the verb's exit code says what that means
        screen.say(error.what)
    saved, details = f"Saved: {directory}", f"Details: gputax report {directory}"
    if len(saved) + len(details) + 3 <= screen.width:
        screen.say(f"{saved} · {details}")
    else:
        screen.say(saved)
        screen.say(details)
