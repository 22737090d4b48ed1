"""Write the answer as a short Markdown page: the summary of a CI step, or a comment on a change."""

from __future__ import annotations

from gputax.report.exporters.judged_rows import JudgedRow, judged_rows
from gputax.report.exporters.markdown_text import MARKER, commands_text, escaped
from gputax.report.model import Report

MARKS = {"pass": "✅", "fail": "❌", "inconclusive": "❔", "not comparable": "≠"}
HEADINGS = ("", "what", "base", "other", "overhead", "budget", "verdict")
MOST_ROWS = 50


def summary_text(report: Report) -> str:
    """Return a heading with the answer, one table, and behind a click the warnings and how to repeat it."""
    rows = judged_rows(report)
    mark = MARKS.get(report.answer.tone, "❔")
    parts = [f"{MARKER}, summary -->", f"### {mark} {escaped(report.answer.text)}"]
    parts += [f"On {escaped('; '.join(report.devices))}, {escaped(report.measured)}."] if report.devices else []
    lines = ["| " + " | ".join(HEADINGS) + " |", "|---|---|---:|---:|---:|---:|---|"]
    lines += [_line(row) for row in rows[:MOST_ROWS]]
    parts.append("\n".join(lines))
    if len(rows) > MOST_ROWS:
        parts.append(f"{len(rows) - MOST_ROWS} more metrics are in the report.")
    parts += [escaped(fact.text) for fact in report.facts]
    folded = [f"- {escaped(warning.text)}" for warning in report.warnings]
    body = ["\n".join(folded)] if folded else []
    parts += ["<details><summary>Warnings, and how to repeat it</summary>", *body, commands_text(report), "</details>"]
    return "\n\n".join(parts) + "\n"


def _line(row: JudgedRow) -> str:
    verdict = row.word("verdict")
    undecided = verdict == "inconclusive"
    mark = "" if undecided and not row.decides else MARKS.get(verdict, "")
    shown = "not judged" if undecided and not row.decides else "undecided" if undecided else verdict
    cells = [
        mark,
        f"{escaped(row.sides)}<br>{escaped(row.name)}",
        *(escaped(row.text(key)) for key in ("base_value", "other_value", "overhead", "budget")),
        f"**{shown}**" if verdict == "fail" else shown,
    ]
    return "| " + " | ".join(cells) + " |"
