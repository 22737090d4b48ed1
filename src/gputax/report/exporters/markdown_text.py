"""Write the report as Markdown: question, answer, one table, charts, warnings, fingerprints, how to reproduce."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gputax import __version__
from gputax.report.model import Cell, Chart, Report, Table
from gputax.report.wording import joined

MARKER = "<!-- gputax report"
# For the page and the CSV: a comment on a change is read by people who want the answer.
OMITTED_SECTIONS = ("telemetry",)
# Hundreds of rows: behind a click, as on the page.
FOLDED = ("tenants",)
SPECIAL = re.compile(r"([\\`*_\[\]#|~!$])")


def markdown_text(report: Report, chart_files: Mapping[str, str] | None = None) -> str:
    """Return the report; `chart_files` names the file of each chart that was drawn beside it."""
    files = chart_files or {}
    parts = [
        f"{MARKER}, gputax {__version__}; `gputax report` rewrites it -->",
        f"# {escaped(report.question)}",
        *(f"**{escaped(answer.text)}**" for answer in (report.answer, *report.more_answers)),
    ]
    if report.devices:
        parts.append(f"Measured on {escaped(joined(report.devices))}, {escaped(report.measured)}.")
    if report.answer_table is not None:
        parts.append(table_text(report.answer_table))
    parts += [escaped(fact.text) for fact in report.facts]
    parts += _images(report, files)
    if report.warnings:
        parts += ["## Warnings", "\n".join(f"- {escaped(warning.text)}" for warning in report.warnings)]
    for section in report.sections:
        if section.name in OMITTED_SECTIONS:
            continue
        tables = [*(chart.table for chart in section.charts if chart.table is not None), *section.tables]
        if tables:
            body = [*(escaped(line) for line in section.intro.splitlines()), *(table_text(table) for table in tables)]
            body += ["\n".join(f"- {escaped(note)}" for note in section.notes)] if section.notes else []
            if section.name in FOLDED or (section.name == "metrics" and all(table.detail for table in tables)):
                body = ["<details><summary>Show the tables</summary>", *body, "</details>"]
            parts += [f"## {escaped(section.title)}", *body]
    parts += ["## How to reproduce", commands_text(report)]
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Return the text so that Markdown and the HTML inside it show it as it is."""
    shown = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    shown = SPECIAL.sub(r"\\\1", shown)
    # At the beginning of a line these would begin a list.
    return re.sub(r"^(\d*)([-+.)])(?=\s)", r"\1\\\2", shown)


def table_text(table: Table) -> str:
    """Return a table with its title and notes."""
    columns = table.shown_columns
    lines = [
        f"**{escaped(table.title)}**",
        "",
        "| " + " | ".join(escaped(column.heading) for column in columns) + " |",
        "|" + "|".join("---:" if column.align == "right" else "---" for column in columns) + "|",
        *("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in table.shown_rows),
    ]
    if table.notes:
        lines += ["", *(f"- {escaped(note)}" for note in table.notes)]
    return "\n".join(lines)


def _cell(cell: Cell) -> str:
    text = escaped(cell.text)
    if cell.tone == "fail":
        text = f"**{text}**" if text else text
    return f"{text}: {escaped(cell.detail)}" if cell.detail else text


def _images(report: Report, files: Mapping[str, str]) -> list[str]:
    """Return the charts, and below the last of those that share a caption what it explains."""
    drawn: dict[str, list[Chart]] = {}
    for chart in report.charts:
        if chart.name in files:
            drawn.setdefault(chart.caption, []).append(chart)
    parts = []
    for caption, charts in drawn.items():
        parts += [f"![{escaped(chart.title)}]({files[chart.name]})" for chart in charts] + [escaped(caption)]
    return parts


def commands_text(report: Report) -> str:
    """Return the commands as a block, however many backticks are in them."""
    longest = max((len(run) for line in report.commands for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}sh", *report.commands, fence])
