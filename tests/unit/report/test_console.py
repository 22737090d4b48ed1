"""At every width: no line longer than the terminal, no word and no number cut, and ASCII where it must be."""

from __future__ import annotations

import dataclasses
import io
import re
from typing import Any

import pytest

from gputax.report.exporters.console_text import Screen, width_of, write_console, write_table
from gputax.report.model import Cell, Column, Report, Table, text_cell
from gputax.report.sources import Sources
from gputax.report.story import build_report
from gputax.results.documents.sharing import ObtainedRow
from tests.builders.documents import benchmark, comparison, metric, p99, run_source, side, sources
from tests.builders.shared_documents import gpu_record, neighbours_record, obtained, obtained_record, shared

WIDTHS = (40, 60, 80, 100, 140)


def reports() -> dict[str, Report]:
    busy: dict[str, Any] = {"scenario": "single-stream", "batch_size": 1}
    operations = [
        benchmark(f"{name}-single-stream-bare", workload=name, scenario="single_stream", batch_size=1)
        for name in ("micro:operation", "micro:copy-in-1MiB")
    ]
    models = [benchmark(), benchmark("server", scenario="server", target_qps=1300.0, rate_source="chosen by gputax")]
    layers = [metric(other=name, percent=percent) for name, percent in (("container", 0.4), ("k8s+proxy", 6123.4))]
    sides = tuple(map(side, ("bare", "container", "k8s+proxy")))
    return {
        "run": build_report(sources(runs=(run_source(*models),))),
        "operations": build_report(sources(runs=(run_source(*operations),))),
        "runs": build_report(sources(runs=(run_source(), run_source(directory="results/k8s", environment="k8s")))),
        "duet": build_report(sources(comparison(metric(**busy), p99(**busy, pairs_needed=90_000)))),
        "cells": build_report(sources(comparison(metric(), p99(**busy, base_value=None)))),
        "layers": build_report(sources(comparison(*layers, sides=sides))),
        "sharing": build_report(Sources(sharing=shared(gpu_record()).sharing)),
        "neighbours": build_report(Sources(sharing=shared(neighbours_record("proxy", "cpu-quota")).sharing)),
        "obtained": build_report(Sources(sharing=shared(obtained_record(*obtained_rows())).sharing)),
        "energy": build_report(sources(runs=(run_source(benchmark(joules_per_sample=0.1234), *models),))),
    }  # fmt: skip


def obtained_rows() -> list[ObtainedRow]:
    failed: dict[str, Any] = {"verdict": "fail", "reason": "at least 12.3 % less than asked for; tolerance 5 %"}
    return [
        obtained("alone", 1, same_as=(2, 3)),
        obtained("equals", 1, 1 / 3, resource="memory", technique="mps"),
        obtained("greedy", 3, **failed, technique="mps"),
        obtained("greedy", 1, None, technique="proxy"),
        obtained("equals", 2, verdict="not comparable", reason="the machine was disturbed in 2 of 3 repeats"),
    ]


REPORTS = reports()


def words(text: str) -> set[str]:
    return set(re.findall(r"[^\s─]+", text))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", REPORTS)
def test_a_report_fits_its_terminal(name: str, width: int) -> None:
    stream = io.StringIO()
    write_console(REPORTS[name], stream, width=width)
    shown = stream.getvalue()
    # A word that is longer than the terminal, such as a path, stays whole on a line of its own.
    assert [line for line in shown.splitlines() if len(line) > width and " " in line.strip()] == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", REPORTS)
def test_no_word_and_no_number_of_a_table_is_cut(name: str, width: int) -> None:
    for table in REPORTS[name].tables:
        for form in table.console or (table,):
            stream = io.StringIO()
            write_table(form, stream, width)
            known = words(" ".join([form.title, *form.notes, *(c.heading + " " + c.short for c in form.columns)]))
            known |= {f"{word}:" for word in known} | {"–"}
            for row in form.shown_rows:
                for cell in row:
                    known |= words(f"{cell.text} {cell.detail}")
                    known |= {f"{each}{mark}" for each in words(f"{cell.text} {cell.detail}") for mark in ",;:"}
            assert words(stream.getvalue()) - known == set()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", REPORTS)
def test_columns_that_never_give_way_are_always_there(name: str, width: int) -> None:
    for table in REPORTS[name].tables:
        for form in table.console or (table,):
            stream = io.StringIO()
            write_table(form, stream, width)
            for row in form.shown_rows:
                for cell, column in zip(row, form.shown_columns, strict=True):
                    if not column.spare:
                        assert words(cell.text) <= {word.rstrip(";:,") for word in words(stream.getvalue())} | words(
                            stream.getvalue()
                        )


@pytest.mark.parametrize("name", REPORTS)
def test_true_ascii_output_never_fails(name: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    write_console(REPORTS[name], stream, width=80)
    stream.flush()
    lines = raw.getvalue().decode("ascii").splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("?" in line and "undecided" not in line for line in lines)


SOME = Table(
    "t", "", (Column("name", "name"), Column("rate", "rate", "samples/s", "right", short="/s"),
              Column("mean", "mean", "ms", "right", spare=1)),
    ((text_cell("a"), Cell("12.5"), Cell("7.25")), (text_cell("a"), Cell("13.5"), Cell("–"))),
)  # fmt: skip


def lines_of(table: Table, width: int) -> list[str]:
    stream = io.StringIO()
    write_table(table, stream, width)
    return stream.getvalue().splitlines()


def test_headings_shorten_first_then_a_spare_column_goes_then_rows_are_stacked() -> None:
    assert lines_of(SOME, 80)[0] == "name  rate (samples/s)  mean (ms)"
    assert lines_of(SOME, 32)[0] == "name    /s  mean (ms)"
    assert lines_of(SOME, 12)[0] == "name    /s"
    assert lines_of(SOME, 8) == ["a", "  /s:", "    12.5", "  mean", "    (ms):", "    7.25", "a", "  /s:", "    13.5",
                                 "  mean", "    (ms):", "    –"]  # fmt: skip


def test_a_name_that_repeats_is_written_once() -> None:
    assert [line.split()[0] for line in lines_of(SOME, 80)[2:]] == ["a", "13.5"]


def test_rows_may_stand_below_what_they_share() -> None:
    assert lines_of(dataclasses.replace(SOME, grouped=True), 80)[2:4] == ["a", "              12.5       7.25"]


def test_an_interval_stands_below_its_number_where_room_is_short() -> None:
    table = Table("t", "", (Column("n", "n"), Column("v", "v", align="right")),
                  ((text_cell("cell"), Cell("+3.2 % (+2.6 to +3.9)")),))  # fmt: skip
    assert lines_of(table, 80)[2] == "cell  +3.2 % (+2.6 to +3.9)"
    assert lines_of(table, 20)[2:] == ["cell          +3.2 %", "      (+2.6 to +3.9)"]


def test_a_number_stays_with_its_unit() -> None:
    stream = io.StringIO()
    Screen(stream, 20).say("this machine has an overhead of 12.5 % here")
    assert stream.getvalue().splitlines() == ["this machine has an", "overhead of 12.5 %", "here"]


def test_a_path_that_is_longer_than_the_terminal_stays_whole() -> None:
    stream = io.StringIO()
    Screen(stream, 20).say("Results: results/duet-bare-bare-proxy-20260101")
    assert "results/duet-bare-bare-proxy-20260101" in stream.getvalue().splitlines()


@pytest.mark.parametrize(("columns", "width"), [("132", 132), ("", 80), ("0", 80), ("wide", 80), ("5", 20)])
def test_a_pipe_is_as_wide_as_columns_says_and_else_80(
    columns: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert width_of(io.StringIO()) == width


def test_run_and_report_show_a_cell_the_same_way() -> None:
    """One function makes the rate with its interval: "±25 %" in one place was "±26.9 %" in another."""
    report = REPORTS["run"]
    assert report.answer_table is not None
    (console,) = report.answer_table.console
    rates = [next(c.text for c, k in zip(row, report.answer_table.columns, strict=True) if k.key == "throughput")
             for row in report.answer_table.rows]  # fmt: skip
    assert [row[1].text for row in console.rows] == rates
