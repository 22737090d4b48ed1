from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest

from gputax.errors import ResultsError, UsageError
from gputax.report.exporters import html_page as html_exporter
from gputax.report.exporters.data_text import csv_text, json_text
from gputax.report.exporters.html_page import html_page
from gputax.report.exporters.markdown_text import markdown_text
from gputax.report.model import Chart, Report, Table
from gputax.report.output import FOR_CI, FORMATS, Format, report_text, save_report
from gputax.report.sources import Sources, cleaned, read_sources
from gputax.report.story import build_report
from gputax.results.documents.base import Failure, WarningRecord
from gputax.results.documents.sharing import SHARING_NAME, SharedFigure, SharingRecord
from gputax.results.files import write_text
from tests.builders.documents import CPU, HOSTILE, comparison, run_source, sources
from tests.builders.shared_documents import (
    GPU,
    figure,
    gpu_record,
    invalid_cell,
    isolation,
    neighbour,
    neighbours,
    neighbours_record,
    shared,
    shared_cell,
    shared_row,
    sharing_record,
    tenant,
)
from tests.unit.report.test_exporters import Page, refuse

FORMULA = '=HYPERLINK("http://evil","x")'
LIMIT_BYTES = 2 * 1024 * 1024


def hostile_record() -> SharingRecord:
    """Every text of a document is an attack."""
    warning = WarningRecord(code=HOSTILE, text=HOSTILE)
    rows = tuple(shared_row(name, count, entitlement=name) for name in (HOSTILE, FORMULA) for count in (1, 3))
    own = (tenant(1, HOSTILE, 1, HOSTILE, entitlement=FORMULA, evidence={HOSTILE: HOSTILE}),)
    cells = (
        shared_cell(HOSTILE, 1, results=own, evidence={HOSTILE: [HOSTILE]}, warnings=(warning,)),
        invalid_cell(FORMULA, 3, reason=HOSTILE).model_copy(update={"cell": HOSTILE}),
    )
    victims = (neighbour(HOSTILE, victim=HOSTILE), neighbour(FORMULA, victim=HOSTILE, valid=False, warnings=(warning,)))
    promises = tuple(row.model_copy(update={"text": HOSTILE, "technique": HOSTILE}) for row in isolation("x"))
    return sharing_record(
        (HOSTILE, FORMULA), (1, 3), rows=rows, cells=cells, neighbours=victims, isolation=promises,
        failures=(Failure(cell=HOSTILE, kind="E", what=HOSTILE, next=HOSTILE),), warnings=(warning,),
        workload=HOSTILE, place=HOSTILE, claim=HOSTILE, command=f"gputax share ```{HOSTILE}",
        device_label=f"CPU ({HOSTILE}), not a GPU", plan={HOSTILE: HOSTILE, "techniques": HOSTILE},
    )  # fmt: skip


def everything() -> Report:
    """Runs, a duet, tenants and neighbours in one report."""
    made = sources(comparison(), runs=(run_source(),))
    return build_report(Sources(made.runs, made.comparisons, shared(gpu_record(), neighbours_record()).sharing))


def test_hostile_names_stay_text_in_html() -> None:
    page = Page(html_page(build_report(shared(hostile_record()))))
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert not {"img", "iframe", "object", "embed", "form", "link", "base"} & {tag for tag, _ in page.tags}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert HOSTILE in "".join(page.texts)


def test_hostile_names_stay_text_in_markdown_and_csv() -> None:
    report = build_report(shared(hostile_record()))
    text = markdown_text(report)
    for command in report.commands:
        text = text.replace(command, "")
    assert "<script" not in text
    for row in csv.reader(io.StringIO(csv_text(report))):
        assert not [field for field in row if field.startswith(("=", "@", "+"))]


def test_every_text_of_the_document_is_made_harmless() -> None:
    bad = "a\x1b[2J\nb\u202e"
    made = cleaned(shared(sharing_record((bad,), (1,), workload=bad, plan={bad: [bad]}))).sharing[0]
    text = made.record.model_dump_json()
    assert "\\u001b" not in text
    assert "\u202e" not in text


def test_ids_of_the_page_are_unique_and_links_lead_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_exporter, "inline_svg", lambda chart: "<svg></svg>")
    page = Page(html_page(everything()))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert {"sharing", "neighbours", "tenants"} <= set(ids)
    assert {(attributes["href"] or "")[1:] for tag, attributes in page.tags if tag == "a"} <= set(ids)


def test_the_page_has_every_answer_and_names_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_exporter, "inline_svg", lambda chart: "<svg></svg>")
    report = everything()
    text = "".join(Page(html_page(report)).texts).replace("\N{NO-BREAK SPACE}", " ")
    for fact in (report.answer, *report.more_answers):
        assert fact.text in text
    titles: list[Table | Chart] = [*report.tables, *report.charts]
    for titled in titles:
        assert any(device in titled.title for device in report.devices), titled.name


def test_markdown_has_the_answers_the_users_table_and_folds_the_long_ones() -> None:
    report = everything()
    text = markdown_text(report)
    for fact in report.more_answers:
        assert f"**{fact.text}**" in text
    assert "| technique | 7 Pods | 5 Pods | 3 Pods | 1 Pod |" in text
    assert "| Time-slicing | 0.685 | 0.486 | 0.287 | 0.088 |" in text
    head, _, folded = text.partition("## Every cell and every tenant")
    assert folded.startswith("\n\n<details><summary>Show the tables</summary>\n\n")
    assert "every tenant on" not in head
    assert folded.split("</details>")[0].count("\n| time-slicing-t7-r1 |") == 1 + 7


def test_markdown_draws_its_charts_beside_it(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="charts need vl-convert-python")
    record = gpu_record(neighbours=neighbours("mps"))
    written = save_report(build_report(shared(record)), "markdown", tmp_path / "comparison.md")
    assert [file.name for file in written[1:]] == [
        f"comparison-{name}-1.svg"
        for name in (
            "overview",
            "sharing-latency",
            "sharing-p99",
            "sharing-throughput",
            "sharing-fairness",
            "neighbours",
        )
    ]
    text = (tmp_path / "comparison.md").read_text()
    for file in written[1:]:
        assert f"]({file.name})" in text
    assert text.count("Pale bar: the 95 %") == 1, "a caption is shown once"


def test_the_terminal_has_every_answer_and_the_tables_behind_the_charts() -> None:
    report = everything()
    text = report_text(report, "table")
    joined = " ".join(text.split())
    for fact in (report.answer, *report.more_answers):
        assert fact.text in joined
    assert "mean inference time in seconds" in joined
    assert "every tenant on" not in joined, "hundreds of rows are for the page and the CSV"
    assert "✗ fail" in text


def test_the_csv_has_rows_tenants_neighbours_and_isolation_as_numbers() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(everything()))))
    tables = {name: [row for row in rows if row["gputax_table"] == name] for name in {r["gputax_table"] for r in rows}}
    assert set(tables) == {
        "metrics", "cells", "telemetry", "sharing", "tenants", "neighbours", "isolation", "failures",
    }  # fmt: skip
    first = tables["sharing"][0]
    assert (first["technique"], first["tenants"], first["device"], first["place"]) == ("time-slicing", "1", GPU, "k8s")
    assert (first["mean"], first["mean_low"], first["aggregate"]) == ("88", "86.24", "11.3636363636")
    assert float(first["p99"]) == pytest.approx(114.4)
    (invalid,) = [row for row in tables["sharing"] if (row["technique"], row["tenants"]) == ("mps", "7")]
    assert (invalid["mean"], invalid["p99"], invalid["reason"]) == ("", "", "no MPS client was seen")
    assert {row["stand_in"] for row in tables["sharing"]} == {"false"}
    assert len(tables["tenants"]) == 3 * (3 * 16 - 7)
    assert tables["tenants"][0]["directory"] == "results/share-0/sharing.json"
    beside = tables["neighbours"][0]
    assert (beside["slowdown_percent"], beside["slowdown_percent_low"]) == ("1.2", "-1.8")
    assert [row["verdict"] for row in tables["isolation"]] == ["pass", "fail", "not tried"]


def test_programs_are_told_of_stand_ins_too() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(build_report(shared(sharing_record()))))))
    assert {(row["technique"], row["stand_in"]) for row in rows} == {("cpu-shared", "true"), ("cpu-quota", "true")}


def test_the_json_is_strict_and_has_the_answers_and_null_where_there_is_no_number() -> None:
    rows = tuple(shared_row("mps", n, p99_ms=figure(None), jain=SharedFigure(value=math.nan)) for n in (1, 3))
    data = json.loads(
        json_text(build_report(shared(sharing_record(("mps",), (1, 3), rows=rows)))), parse_constant=refuse
    )
    sharing = next(table for table in data["tables"] if table["name"] == "sharing")
    assert sharing["rows"][0]["p99"] == {"value": None, "ci95": [None, None], "text": "–"}
    assert sharing["rows"][0]["jain"]["value"] is None
    assert sharing["rows"][0]["device"] == CPU
    both = json.loads(json_text(everything()))
    assert [each["verdict"] for each in both["more_answers"]] == [None, "fail"]


ODD: dict[str, SharingRecord] = {
    "one technique": sharing_record(("cpu-shared",)),
    "one number of tenants": sharing_record(tenants=(7,)),
    "one point": sharing_record(("mig",), (1,)),
    "rows only": sharing_record(cells=()),
    "cells only": sharing_record(rows=()),
    "neighbours only": neighbours_record(),
    "isolation only": neighbours_record(neighbours=()),
    "one invalid cell": gpu_record(),
    "all invalid": sharing_record(("mps",), (7,), rows=(), cells=(invalid_cell("mps"),)),
    "no interval": sharing_record(rows=tuple(shared_row("mps", n, mean_ms=figure(9.0, None)) for n in (1, 3))),
    "an unknown technique": sharing_record(("next-year",)),
    "no plan": sharing_record(plan={}, fingerprint={}, claim="", command=""),
    "an odd plan": sharing_record(plan={"techniques": 5, "tenants": None}),
    "only a failure": sharing_record((), (), failures=(Failure(cell="odd name", kind="E", what="it broke"),)),
    "zero everywhere": sharing_record(rows=tuple(
        shared_row("mps", n, mean_ms=figure(0.0), aggregate_per_s=figure(0.0), jain=figure(0.0)) for n in (1, 3))),
    "huge": sharing_record(rows=tuple(shared_row("mps", n, mean_ms=figure(1e300)) for n in (1, 3))),
    "no tenants in a cell": sharing_record(("mps",), (1,), cells=(shared_cell("mps", 1, results=()),)),
    "nan": sharing_record(
        rows=tuple(shared_row("mps", n, mean_ms=SharedFigure(value=5.0, ci95=(math.nan, math.inf))) for n in (1, 3)),
        cells=(shared_cell("mps", 3, jain=math.nan, overlap_share=math.nan, window_s=math.inf),)),
    "reasons that are a text": sharing_record(("mps",), (7,), rows=(), cells=(
        shared_cell("mps", valid=False, evidence={"reasons": "only one"}),)),
}  # fmt: skip


# Drawing takes most of the time: of the odd ones, these are odd in their charts.
ODD_TO_DRAW = ("one number of tenants", "no interval", "zero everywhere", "huge", "nan")


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("export", [name for name in FORMATS if name != "svg" and name not in FOR_CI])
def test_odd_documents_are_shown_and_never_a_traceback(
    kind: str, export: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind not in ODD_TO_DRAW:
        monkeypatch.setattr(html_exporter, "inline_svg", lambda chart: "<svg></svg>")
    assert report_text(build_report(shared(ODD[kind])), export)


def test_a_large_experiment_stays_below_the_limit() -> None:
    names = ("time-slicing", "mps", "mig", "proxy")
    cells = tuple(shared_cell(name, 48, repeat) for name in names for repeat in range(1, 11))
    text = html_page(build_report(shared(sharing_record(names, (1, 16, 48), cells=cells))))
    assert len(text.encode()) < LIMIT_BYTES


def write(directory: Path, record: SharingRecord, name: str = SHARING_NAME) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    write_text(directory / name, record.model_dump_json())
    return directory


def test_a_sharing_directory_is_read_alone_and_among_others(tmp_path: Path) -> None:
    one = write(tmp_path / "share", sharing_record())
    write_text(tmp_path / "duet" / "comparison.json", comparison().model_dump_json())
    assert [each.record for each in read_sources([one]).sharing] == [sharing_record()]
    found = read_sources([tmp_path, one, one / SHARING_NAME])
    assert (len(found.runs), len(found.comparisons), len(found.sharing)) == (0, 1, 1)


def test_a_sharing_document_is_known_under_any_name(tmp_path: Path) -> None:
    path = write(tmp_path, sharing_record(), "mine.json") / "mine.json"
    assert len(read_sources([path]).sharing) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b'{"schema_version": 1', "invalid JSON"),
        (b'{"schema_version": 9}', "written by a newer gputax"),
        (b'{"schema_version": 1, "kind": "sharing"}', "not a sharing experiment"),
        (b"[]", "not a sharing experiment: the file contains a list, not an object"),
        (b"7", "not a sharing experiment: the file contains a single value, not an object"),
        (b"{}", "not a sharing experiment: the file contains an empty object"),
    ],
)
def test_a_broken_sharing_document_is_one_clear_error(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / SHARING_NAME).write_bytes(content)
    with pytest.raises(ResultsError, match=message) as caught:
        read_sources([tmp_path])
    assert caught.value.where.endswith(SHARING_NAME)
    assert caught.value.next_step


def test_an_empty_directory_names_all_documents_that_a_report_is_made_of(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no results here") as caught:
        read_sources([tmp_path])
    assert SHARING_NAME in caught.value.next_step


def test_a_report_is_never_written_over_a_sharing_document(tmp_path: Path) -> None:
    write(tmp_path, sharing_record())
    report: Any = build_report(shared(sharing_record()))
    with pytest.raises(UsageError, match="not written over results"):
        save_report(report, "json", tmp_path / SHARING_NAME, overwrite=True)
