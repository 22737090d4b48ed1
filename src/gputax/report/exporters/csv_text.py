"""Write the data tables as one CSV: a row per metric, layer, cell or tenant, numbers as numbers."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator

from gputax.report.model import Cell, Report, Table, Value

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
