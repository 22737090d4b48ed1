"""Write overheads as the JSON of github-action-benchmark: a list of numbers of which smaller is better."""

from __future__ import annotations

import json
from typing import Any

from gputax import __version__
from gputax.report.exporters.judged_rows import JudgedRow, judged_rows
from gputax.report.model import Report

# Each entry says first who wrote it: the format has no other place for it.
SIGN = '"extra": "gputax '


def benchmark_text(report: Report) -> str:
    """Return the list for its tool `customSmallerIsBetter`; a metric without a number is not in it."""
    entries = [_entry(row) for row in judged_rows(report) if row.number("overhead") is not None]
    return json.dumps(entries, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _entry(row: JudgedRow) -> dict[str, Any]:
    low, high = row.bounds
    known = [f"budget {row.text('budget')}", f"verdict {row.word('verdict')}", f"on {row.word('device')}"]
    entry: dict[str, Any] = {
        "extra": "\n".join([f"gputax {__version__}", *known, row.word("reason")]),
        "name": f"{row.sides}, {row.name}",
        "unit": "% overhead",
        "value": row.number("overhead"),
    }
    if low is not None and high is not None:
        entry["range"] = f"{low:.3g} to {high:.3g}"
    return entry
