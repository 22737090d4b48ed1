"""`gputax advise` refuses what cannot be right before it reads anything, and shows what decides."""

from __future__ import annotations

import io

import click
import pytest

from gputax.advise.advice import Advice, advise
from gputax.advise.table import from_record, published_table
from gputax.advise.targets import Question, parse_targets
from gputax.cli.advise import advise as advise_verb
from gputax.errors import ResultsError, UsageError
from gputax.report.advice import shown_rows, write_advice
from tests.builders.sharing_records import CPU, cell, cells, contention, partition, record, turns


def call(*words: str) -> object:
    return advise_verb.main(args=list(words), prog_name="gputax advise", standalone_mode=False)


def shown(advice: Advice, width: int = 140) -> str:
    stream = io.StringIO()
    write_advice(advice, stream, width)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("words", "complaint", "hint"),
    [
        ([], "no results given", "--published a100-nos"),
        (["x", "--published", "a100-nos", "--slo", "mean=1s"], "exclude each other", "use one"),
        (["--published", "a100-nos"], "no target or rate is given", "--slo p99=50ms"),
        (["--published", "a100-nos", "--slo", "p99"], "is not a target", "--slo p99=50ms"),
        (["--published", "a100-nos", "--slo", "mean=300"], "not a time with a unit", "--slo mean=300ms, or mean=300s"),
        (["--published", "a100-nos", "--slo", "mean=300min"], "not a time with a unit", "--slo p99=50ms"),
        (
            ["--published", "a100-nos", "--slo", "mean=1s", "--fit", "2,4"],
            "2 and 4 were never published; published: 1, 3, 5 and 7",
            "--fit 1,3",
        ),
        (["--published", "a100-nos", "--slo", "max=50ms"], "unknown statistic 'max'", "known: mean, p50, p90, p99"),
        (["--published", "a100-nos", "--slo", "p99=50ms"], "only means", "--slo mean="),
        (["--published", "h100", "--slo", "mean=1s"], "unknown published table 'h100'", "a100-nos"),
        (["published:a100-mos", "--slo", "mean=1s"], "unknown published table", "did you mean 'a100-nos'?"),
        (["--published", "a100-nos", "--rate", "0"], "--rate must be above zero", ""),
        (["--published", "a100-nos", "--slo", "mean=1s", "--price", "0"], "--price must be above zero", ""),
        (["--published", "a100-nos", "--slo", "mean=1s", "--currency", "USD"], "--currency without a --price", ""),
        (["--published", "a100-nos", "--slo", "mean=1s", "--fit", "1,x"], "not a list of whole numbers", ""),
    ],
)
def test_mistakes(words: list[str], complaint: str, hint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as raised:
        call(*words)
    assert hint in raised.value.next_step


@pytest.mark.parametrize("words", [["--rate", "nan"], ["--price", "inf"], ["--price", "-1"], ["--up-to", "0"]])
def test_numbers_that_are_none(words: list[str]) -> None:
    with pytest.raises(click.BadParameter):
        call("--published", "a100-nos", "--slo", "mean=1s", *words)


def test_a_fit_that_the_points_do_not_allow_says_which_there_are() -> None:
    with pytest.raises(ResultsError, match="no technique can be modelled") as raised:
        call("--published", "a100-nos", "--slo", "mean=1s", "--fit", "3")
    assert "1,3,5,7" in raised.value.next_step


@pytest.mark.parametrize(("target", "code"), [("mean=200ms", 0), ("mean=50ms", 6), ("mean=87900us", 7)])
def test_the_exit_code_is_the_answer(target: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--published", "a100-nos", "--slo", target) == code
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(
        {0: "MPS with 3 tenants meets", 6: "Nothing meets", 7: "Unsure: nothing certainly meets"}[code]
    )


def test_rows_are_those_that_were_measured_and_those_where_the_verdict_changes() -> None:
    advice = advise(published_table("a100-nos"), Question(parse_targets(("mean=400ms",)), up_to=14))
    by_technique = {each.model.technique.name: [row.tenants for row in shown_rows(each)] for each in advice.considered}
    assert by_technique["mps"] == [1, 3, 5, 7, 8]
    assert by_technique["time-slicing"] == [1, 3, 4, 5, 7]
    assert by_technique["mig"] == [1, 3, 5, 7]


@pytest.mark.parametrize("only", [(), (1, 3), (1, 7), (1, 3, 5)])
@pytest.mark.parametrize("target", ["mean=50ms", "mean=89ms", "mean=200ms", "mean=300ms", "mean=400ms"])
@pytest.mark.parametrize("up_to", [None, 2, 8, 14])
def test_every_row_that_the_answer_names_is_in_the_table(only: tuple[int, ...], target: str, up_to: int | None) -> None:
    advice = advise(published_table("a100-nos"), Question(parse_targets((target,)), up_to=up_to), only)
    rows = [row for each in advice.considered for row in shown_rows(each, advice.named)]
    assert advice.named
    assert all(row in rows for row in advice.named)


def test_measured_and_model_stand_in_columns_of_their_own() -> None:
    advice = advise(published_table("a100-nos"), Question(parse_targets(("mean=330ms",)), price_per_h=3.6))
    lines = shown(advice).splitlines()
    (head,) = [line for line in lines if line.split()[:2] == ["tenants", "basis"]]
    assert "published mean ms" in head
    assert "model mean ms" in head
    seven = next(line.split() for line in lines[lines.index("MPS") :] if line.split()[:1] == ["7"])
    assert " ".join(seven) == "7 published 319.8 318.3 (310.3 to 326.5) 21.89 21.99 45.69 yes"


def test_the_measured_column_is_of_the_statistic_that_was_asked_for() -> None:
    made = record(*(cell("mps", count, 1, contention()(count)) for count in (1, 3, 5, 7)), device="cuda")
    text = shown(advise(from_record(made), Question(parse_targets(("p50=50ms",)))))
    (three,) = [line.split() for line in text.splitlines() if line.split()[:2] == ["3", "measured"]]
    assert three[2] == "17.64", "0.98 of a mean of 18 ms"
    assert "measured p50 of the worst tenant" in " ".join(text.split())


@pytest.mark.parametrize("width", [40, 60, 80, 140])
def test_figures_are_not_cut_short_however_many_were_asked_for(width: int) -> None:
    made = record(*cells("mps", contention()), *cells("time-slicing", turns()), device="cuda")
    slo = ("p99=30ms,p90=30ms,p50=30ms,mean=20ms",)
    text = shown(advise(from_record(made), Question(parse_targets(slo), rate_per_s=5.0, price_per_h=1.0)), width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width


def test_the_label_of_a_stand_in_is_in_the_title_and_the_answer() -> None:
    made = record(*cells("cpu-shared", contention()), *cells("cpu-quota", partition()))
    text = shown(advise(from_record(made), Question(parse_targets(("p99=30ms", "mean=20ms")), rate_per_s=5.0)))
    flat = " ".join(text.split())
    assert f"yolos-small in bare, on {CPU}: p99 ≤ 30 ms and mean ≤ 20 ms and at least 5 inferences/s" in flat
    assert "this is valid only for the stand-in and says nothing about a GPU" in flat
    assert "CPU, shared: contention" in flat
    assert "p99 over mean: 1.5" in flat


def test_texts_of_a_file_cannot_paint_the_terminal() -> None:
    made = record(*cells("mps", contention()), workload="\x1b[31mred[/bold]", claim="\x07bell")
    text = shown(advise(from_record(made), Question(parse_targets(("mean=30ms",)))))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "red[/bold]" in text
