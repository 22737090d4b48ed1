"""Write the whole report as JSON: tables as records, charts as the Vega-Lite specs they are drawn from."""

from __future__ import annotations

import json
import math
from typing import Any

from gputax import __version__
from gputax.report.model import Cell, Chart, Column, Report, Table

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
