"""Asked against obtained in the report: the table, its verdicts, the sentence and the first screen."""

from __future__ import annotations

from typing import Any

from gputax.report.model import Report, Table
from gputax.report.story import build_report
from gputax.results.documents.sharing import ObtainedRow
from tests.builders.shared_documents import obtained, obtained_record, shared

SHORT: dict[str, Any] = {"verdict": "fail", "reason": "at least 12.3 % less than asked for; tolerance 5 %"}


def report_of(*rows: ObtainedRow) -> Report:
    return build_report(shared(obtained_record(*rows)))


def table_of(report: Report) -> Table:
    (table,) = [table for table in report.tables if table.name == "obtained"]
    return table


def test_each_row_says_what_was_asked_what_was_obtained_and_the_verdict() -> None:
    report = report_of(obtained("alone", 1, 0.3, same_as=(2,)), obtained("greedy", 3, 0.4, **SHORT))
    table = table_of(report)
    assert [[cell.text for cell in row][:7] for row in table.shown_rows] == [
        ["cpu-quota (stand-in)", "1,2", "nobody", "compute", "30", "30 (29.4 to 30.6)", "pass"],
        ["cpu-quota (stand-in)", "3", "greedy ones", "compute", "40", "40 (39.2 to 40.8)", "FAIL"],
    ]
    assert "tolerance 5 %" in table.title
    assert report.question == "Is the share that was asked for the share that was obtained?"


def test_the_answer_names_the_worst_share() -> None:
    short = obtained("greedy", 2, 0.4, obtained=obtained(asked=0.2).obtained, **SHORT)
    answer = report_of(obtained(), short).answer
    assert answer.tone == "fail"
    assert "1 of 2 shares are not what was asked for" in answer.text
    assert "tenant 2 of cpu-quota asked for 40 % of compute and obtained 20 % beside greedy ones" in answer.text


def test_all_passed_some_undecided_and_nothing_asked_read_differently() -> None:
    assert report_of(obtained(), obtained("alone")).answer.tone == "pass"
    undecided = report_of(obtained(), obtained("alone", verdict="inconclusive"))
    assert undecided.answer.tone == "inconclusive"
    assert "no share is refuted" in undecided.answer.text
    unasked = report_of(obtained(asked=None))
    assert "no share was asked for" in unasked.answer.text
    assert [row[6].text for row in table_of(unasked).shown_rows] == ["not asked for"]


def test_the_first_screen_draws_the_shares_with_what_was_asked() -> None:
    report = report_of(obtained("equals", 1, 0.3), obtained("greedy", 2, 0.7, **SHORT))
    assert report.overview.title.text == "1 of 2 shares are what was asked for, 1 are not"
    assert report.overview.title.tone == "fail"
    assert report.overview.chart is not None


def test_an_undecided_share_is_not_called_inconclusive() -> None:
    table = table_of(report_of(obtained(verdict="inconclusive"), obtained(verdict="not comparable")))
    assert [(row[6].text, row[6].tone) for row in table.shown_rows] == [
        ("undecided", "inconclusive"),
        ("not comparable", "not comparable"),
    ]
