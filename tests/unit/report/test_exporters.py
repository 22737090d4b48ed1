from __future__ import annotations

import base64
import csv
import hashlib
import html.parser
import io
import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest

from gputax.report.exporters.console_text import write_console
from gputax.report.exporters.data_text import as_text, csv_text, json_text
from gputax.report.exporters.html_page import html_page
from gputax.report.exporters.markdown_text import escaped, markdown_text
from gputax.report.model import Cell, Chart, Column, Report, Table
from gputax.report.story import build_report
from gputax.results.documents.run import LoadGenVerdict
from tests.builders.documents import CPU, HOSTILE, benchmark, comparison, metric, p99, run_source, side, sources

FORMULA = '=HYPERLINK("http://evil","x")'
LINK = "[click](javascript:alert(1)) | `x` <b>"


def hostile_report() -> Report:
    names = (HOSTILE, FORMULA, LINK)
    metrics = [
        metric("bare", name, workload=name, claim=name, verdict="fail", reason=name, ci95_percent=None)
        for name in names
    ]
    made = comparison(
        *metrics, sides=tuple(side(name, device_label=f"CPU ({name}), not a GPU") for name in ("bare", *names)),
        question=HOSTILE, command=f"gputax duet ```{HOSTILE}",
    )  # fmt: skip
    run = run_source(benchmark(HOSTILE, workload=HOSTILE, engine=FORMULA), environment=HOSTILE, directory=HOSTILE)
    return build_report(sources(made, runs=(run,)))


def nan_report() -> Report:
    bad: dict[str, Any] = {
        "base_value": math.nan,
        "other_value": math.inf,
        "ci95_percent": (math.nan, math.inf),
        "budget": math.nan,
    }
    run = run_source(benchmark(throughput_samples_per_sec=math.nan, latency_mean_ms=math.inf, latency_p50_ms=None))
    return build_report(sources(comparison(metric(percent=math.nan, **bad), metric(percent=None)), runs=(run,)))


class Page(html.parser.HTMLParser):
    """Every tag with its attributes, and every text outside of style and script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside not in ("style", "script"):
            self.texts.append(data)


def test_hostile_names_stay_text_in_html() -> None:
    page = Page(html_page(hostile_report()))
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert not {"img", "iframe", "object", "embed", "form", "link", "base"} & {tag for tag, _ in page.tags}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert HOSTILE in "".join(page.texts)


def test_backticks_become_code_and_nothing_else() -> None:
    text = html_page(build_report(sources(runs=(run_source(),))))
    assert "<code>gputax compare A B</code>" in text


def test_the_page_refers_to_nothing_outside_itself() -> None:
    text = html_page(build_report(sources(comparison(), runs=(run_source(),))))
    assert not re.search(r"https?:|//\w|url\(|@import|src=", text)
    for tag, attributes in Page(text).tags:
        if tag == "a":
            assert (attributes["href"] or "").startswith("#")


def test_links_of_the_page_lead_somewhere_and_ids_are_unique() -> None:
    page = Page(html_page(build_report(sources(comparison(), runs=(run_source(),)))))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert {(attributes["href"] or "")[1:] for tag, attributes in page.tags if tag == "a"} <= set(ids)


def test_only_our_script_may_run() -> None:
    text = html_page(hostile_report())
    script = text[text.index("<script>") + 8 : text.index("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src &#x27;sha256-{digest}&#x27;" in text
    assert "default-src &#x27;none&#x27;" in text


def test_a_report_built_twice_is_the_same() -> None:
    made = sources(comparison(), runs=(run_source(),))
    assert html_page(build_report(made)) == html_page(build_report(made))


def test_every_table_and_chart_title_names_its_device() -> None:
    report = build_report(sources(comparison(metric(), p99()), runs=(run_source(),)))
    titles: list[Table | Chart] = [*report.tables, *report.charts]
    for titled in titles:
        assert CPU in titled.title, titled.name


@pytest.mark.parametrize("value", [FORMULA, "+1", "-1", "@SUM(A1)", "\tx", "\rx"])
def test_no_text_of_the_csv_is_a_formula(value: str) -> None:
    assert as_text(value) == f"'{value}"


def test_numbers_of_the_csv_stay_numbers() -> None:
    assert as_text(-3.25) == "-3.25"
    assert as_text(None) == as_text(math.nan) == as_text(math.inf) == ""
    assert as_text(True) == "true"


def test_the_csv_is_one_table_with_bounds_units_and_devices() -> None:
    report = build_report(sources(comparison(metric(), p99()), runs=(run_source(),)))
    rows = list(csv.DictReader(io.StringIO(csv_text(report))))
    assert {row["gputax_table"] for row in rows} == {"metrics", "cells", "telemetry"}
    first, second = [row for row in rows if row["gputax_table"] == "metrics"]
    assert float(first["overhead"]) == 3.2
    assert float(first["overhead_low"]) == pytest.approx(2.6)
    assert (first["base"], first["other"], first["device"], first["paired"]) == ("bare", "k8s+proxy", CPU, "true")
    assert (second["overhead_ms"], second["overhead_ms_high"], second["budget_unit"]) == ("1.4", "1.8", "ms")


def test_hostile_names_stay_text_in_csv() -> None:
    for row in csv.reader(io.StringIO(csv_text(hostile_report()))):
        assert not [field for field in row if field.startswith(("=", "@", "+"))]


def refuse(constant: str) -> Any:
    raise AssertionError(f"{constant} is no JSON")


def test_the_json_is_strict_and_has_tables_and_specs() -> None:
    data = json.loads(json_text(nan_report()), parse_constant=refuse)
    metrics = next(table for table in data["tables"] if table["name"] == "metrics")
    assert metrics["rows"][0]["overhead"] == {"value": None, "ci95": [None, None], "text": "–"}
    assert data["charts"][0]["spec"]["$schema"].endswith("/v6.json")
    assert data["generator"].startswith("gputax ")


def test_a_number_that_is_none_is_null_wherever_it_comes_from() -> None:
    table = Table("t", "t", (Column("a", "a"),), ((Cell("x", math.nan),), (Cell("x", math.inf),)))
    data = json.loads(json_text(replace(nan_report(), answer_table=table)), parse_constant=refuse)
    assert data["tables"][0]["rows"] == [{"a": None}, {"a": None}]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (HOSTILE, "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("a|b", r"a\|b"),
        ("[x](y)", r"\[x\](y)"),
        ("# no heading", r"\# no heading"),
        ("- no list", r"\- no list"),
        ("1. no list", r"1\. no list"),
        ("&amp;", "&amp;amp;"),
        ("+3.2 %", "+3.2 %"),
    ],
)
def test_markdown_shows_texts_as_they_are(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_hostile_names_stay_text_in_markdown() -> None:
    text = markdown_text(hostile_report())
    fence = re.search(r"^(`{4,})sh\n(.*?)^\1$", text, re.MULTILINE | re.DOTALL)
    assert fence, "a command with backticks gets a longer fence"
    rest = text.replace(fence[0], "")
    assert "<script" not in rest
    assert "](javascript" not in rest.replace("\\](javascript", "")
    for line in rest.splitlines():
        if line.startswith("| "):
            assert len(re.findall(r"(?<!\\)\|", line)) >= 3


@pytest.mark.parametrize("write", [html_page, markdown_text, csv_text, json_text])
def test_what_is_not_a_number_is_never_shown_as_one(write: Any) -> None:
    text = write(nan_report())
    assert not re.search(r"\b(nan|NaN|inf|Infinity|None|null)\b", text.split("<style>")[0]) or write is json_text
    if write is markdown_text:
        assert "| – |" in text


def test_the_console_obeys_no_name_and_knows_no_markup() -> None:
    stream = io.StringIO()
    made = comparison(metric("bare", "[red]x[/red]", workload="\x1b[31mred"))
    write_console(build_report(sources(made)), stream)
    assert "[red]x[/red]" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_an_invalid_cell_says_why() -> None:
    verdict = LoadGenVerdict(valid=False, invalid_reasons=("Min duration not met",))
    run = run_source(benchmark(valid=False, loadgen=verdict))
    report = build_report(sources(runs=(run,)))
    assert report.answer.text == "1 cell measured in bare; 1 not valid."
    assert "**INVALID**: Min duration not met" in markdown_text(report)


def test_a_refused_percentile_is_a_dash_with_a_note() -> None:
    text = markdown_text(build_report(sources(runs=(run_source(),))))
    assert "| – |" in text
    assert "too few samples for that percentile" in text


def test_an_unpaired_row_is_labelled_weaker_everywhere() -> None:
    report = build_report(sources(comparison(metric(paired=False, pairs=None), kind="compare")))
    for text in (markdown_text(report), html_page(report)):
        assert "unpaired (weaker)" in text
    assert any("weaker" in fact.text for fact in report.facts)
