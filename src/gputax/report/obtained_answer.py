"""The answer to asked against obtained, in one sentence; pure."""

from __future__ import annotations

from collections.abc import Sequence

from gputax.plan.shares import BESIDE
from gputax.report import wording
from gputax.report.model import Fact
from gputax.results.documents.sharing import ObtainedRow
from gputax.text import digits


def obtained_answer(rows: Sequence[ObtainedRow], place: str) -> Fact:
    """Return in one sentence whether the tenants got what they asked for."""
    judged = [row for row in rows if row.verdict is not None]
    if not judged:
        return Fact(f"{place}: no share was asked for, so there is nothing to hold the tenants' shares against.")
    failed = [row for row in judged if row.verdict == "fail"]
    if failed:
        worst = max(failed, key=_distance)
        got, asked = digits(100.0 * (worst.obtained.value or 0.0), 3), digits(100.0 * (worst.asked or 0.0), 3)
        beside = "alone" if worst.situation == "alone" else f"beside {BESIDE[worst.situation]}"
        text = (
            f"{place}: {len(failed)} of {len(judged)} shares are not what was asked for; tenant {worst.tenant} of "
            f"{worst.technique} asked for {asked} % of {worst.resource} and obtained {got} % {beside}."
        )
        return Fact(text, "fail")
    open_rows = [row for row in judged if row.verdict != "pass"]
    if open_rows:
        undecided = f"{len(open_rows)} of {len(judged)} shares are undecided or not comparable; no share is refuted"
        return Fact(f"{place}: {undecided}.", "inconclusive")
    count = wording.counted(len(judged), "share")
    return Fact(f"{place}: every tenant obtained what it asked for, within tolerance ({count}).", "pass")


def _distance(row: ObtainedRow) -> float:
    if not row.asked or row.obtained.value is None:
        return 0.0
    return abs(row.obtained.value / row.asked - 1.0)
