"""Write the report as data: everything as JSON, the numbers of every table as one CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from typing import Any

from gputax import __version__
from gputax.report.model import Cell, Chart, Column, Report, Table, Value

REPORT_SCHEMA_VERSION = 1


def json_text(report: Report) -> str:
    """Return the report as strict JSON: what is not a number is null."""
    document = {
        "generator": f"gputax {__version__}",
        "kind": "report",
        "schema_version": REPORT_SCHEMA_VERSION,
        "question": report.question,
        "answer": {"text": report.answer.text, "verdict": report.answer.tone or None},
        "more_answers": [{"text": fact.text, "verdict": fact.tone or None} for fact in report.more_answers],
        "facts": [fact.text for fact in report.facts],
        "devices": list(report.devices),
        "measured": report.measured,
        "warnings": [warning.text for warning in report.warnings],
        "commands": list(report.commands),
        "sources": list(report.sources),
        "tables": [_table(table) for table in report.tables],
        "charts": [_chart(chart) for chart in report.charts],
    }
    return json.dumps(_finite(document), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _table(table: Table) -> dict[str, Any]:
    return {
        "name": table.name,
        "title": table.title,
        "columns": [{"key": each.key, "title": each.title, "unit": each.unit} for each in table.columns],
        "rows": [
            {column.key: _cell(column, cell) for column, cell in zip(table.columns, row, strict=True)}
            for row in table.rows
        ],
        "notes": list(table.notes),
    }


def _cell(column: Column, cell: Cell) -> Any:
    if column.interval:
        return {"value": cell.value, "ci95": [cell.low, cell.high], "text": cell.text}
    return cell.value


def _chart(chart: Chart) -> dict[str, Any]:
    return {"name": chart.name, "title": chart.title, "caption": chart.caption, "spec": chart.spec}


def _finite(data: Any) -> Any:
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return data


# One file that a spreadsheet and pandas read in one go: all columns of all tables, empty where a table has none.
TABLES = ("metrics", "layers", "sharing", "neighbours", "isolation", "cells", "tenants", "telemetry", "failures")
FIRST_COLUMNS = ("gputax_table", "title")
# A spreadsheet takes these for the beginning of a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_text(report: Report) -> str:
    """Return the report's numbers as CSV."""
    tables = [table for table in report.tables if table.name in TABLES]
    records = [(table, dict(_record(table, row))) for table in tables for row in table.rows]
    names = list(dict.fromkeys(name for table in tables for name in _names(table)))
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*FIRST_COLUMNS, *names])
    for table, record in records:
        writer.writerow([table.name, as_text(table.title), *(as_text(record.get(name)) for name in names)])
    return stream.getvalue()


def as_text(value: Value) -> str:
    """Return a value that no spreadsheet runs: a text that looks like a formula gets an apostrophe."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{value}" if value.startswith(FORMULA) else value
    # Twelve digits are more than any clock has, and -0.2 does not become -0.19999999999999996.
    return f"{value:.12g}"


def _names(table: Table) -> list[str]:
    names = []
    for column in table.columns:
        names += [column.key, f"{column.key}_low", f"{column.key}_high"] if column.interval else [column.key]
    return names


def _record(table: Table, row: tuple[Cell, ...]) -> Iterator[tuple[str, Value]]:
    for column, cell in zip(table.columns, row, strict=True):
        yield column.key, cell.value
        if column.interval:
            yield f"{column.key}_low", cell.low
            yield f"{column.key}_high", cell.high
