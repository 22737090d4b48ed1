from __future__ import annotations

import re
from pathlib import Path

import pytest

from gputax.cli.report import FORMATS as CLI_FORMATS
from gputax.errors import GputaxError, ResultsError, UsageError
from gputax.report import output, svg
from gputax.report.exporters import html_page
from gputax.report.model import Report
from gputax.report.output import FORMATS, SUFFIXES, Format, format_of, is_ours, report_text, save_report
from gputax.report.story import build_report
from gputax.results.documents.run import RECORD_NAME
from tests.builders.documents import comparison, metric, run_source, sources


@pytest.fixture(scope="module")
def report() -> Report:
    return build_report(sources(comparison(), runs=(run_source(),)))


@pytest.mark.parametrize(("suffix", "kind"), SUFFIXES.items())
def test_the_name_of_the_file_chooses_the_format(suffix: str, kind: str) -> None:
    assert format_of(Path(f"report{suffix}")) == kind


def test_an_unknown_name_lists_those_that_are_known() -> None:
    with pytest.raises(UsageError, match="unknown kind of report") as caught:
        format_of(Path("report.pdf"))
    assert ".html" in caught.value.next_step


def test_the_command_line_knows_every_format() -> None:
    assert CLI_FORMATS == FORMATS


@pytest.mark.parametrize("name", ["r.html", "r.md", "r.json", "r.csv", "r.svg"])
def test_our_own_report_is_written_anew_and_no_other_file(tmp_path: Path, report: Report, name: str) -> None:
    path = tmp_path / name
    kind = format_of(path)
    save_report(report, kind, path)
    assert is_ours(path)
    first = path.read_bytes()
    save_report(report, kind, path)
    assert path.read_bytes() == first
    path.write_text("my notes")
    with pytest.raises(UsageError, match="not a report of gputax") as caught:
        save_report(report, kind, path)
    assert "--overwrite" in caught.value.next_step
    assert path.read_text() == "my notes"
    save_report(report, kind, path, overwrite=True)
    assert path.read_bytes() == first


def test_markdown_has_its_charts_beside_it_and_spares_foreign_ones(tmp_path: Path, report: Report) -> None:
    pytest.importorskip("vl_convert", reason="charts need vl-convert-python")
    path = tmp_path / "comparison.md"
    written = save_report(report, "markdown", path)
    assert [file.name for file in written] == ["comparison.md", "comparison-overview-1.svg"]
    assert "](comparison-overview-1.svg)" in path.read_text()
    written[1].write_text("<svg/>")
    path.unlink()
    with pytest.raises(UsageError, match="not a report of gputax"):
        save_report(report, "markdown", path)
    assert not path.exists(), "refused before anything is written"


def test_the_first_chart_is_a_picture_of_its_own(report: Report) -> None:
    pytest.importorskip("vl_convert", reason="charts need vl-convert-python")
    text = report_text(report, "svg")
    assert text.startswith("<!-- gputax report -->\n<svg ")
    assert "not a GPU" in text
    assert text == report_text(report, "svg"), "the same results give the same bytes"


@pytest.mark.parametrize("kind", ["table", "markdown", "html", "svg"])
def test_people_read_undecided(kind: Format) -> None:
    """Two rows each: open with an interval, refused without one, in a duet and in a comparison of runs."""
    if kind == "svg":
        pytest.importorskip("vl_convert", reason="charts need vl-convert-python")
    wide = metric(verdict="inconclusive", ci95_percent=(-4.0, 9.0), pairs_needed=400)
    refused = metric(metric="latency_p90", verdict="inconclusive", percent=None, reason="p90 needs 64")
    single = metric(other="k8s", verdict="inconclusive", paired=False, repeats=(1, 1), by_value="over budget by value")
    text = report_text(build_report(sources(comparison(wide, refused), comparison(single))), kind)
    shown = re.sub(r"<style.*?</style>|tone-inconclusive|--inconclusive", "", text, flags=re.DOTALL)
    assert "undecided" in shown
    assert "inconclusive" not in shown


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_data_keeps_the_value_of_the_stored_documents(kind: Format) -> None:
    text = report_text(build_report(sources(comparison(metric(verdict="inconclusive")))), kind)
    assert "inconclusive" in text


def test_without_a_number_there_is_no_picture() -> None:
    empty = build_report(sources(comparison(metric(percent=None, verdict="inconclusive"))))
    with pytest.raises(ResultsError, match="nothing to draw") as caught:
        report_text(empty, "svg")
    assert caught.value.next_step == "--format table says why"


@pytest.mark.parametrize("name", [RECORD_NAME, "comparison.json", "x.parquet"])
def test_results_are_never_replaced_not_even_when_asked(tmp_path: Path, report: Report, name: str) -> None:
    (tmp_path / name).write_text("results")
    with pytest.raises(UsageError, match="not written over results"):
        save_report(report, "json", tmp_path / name, overwrite=True)
    assert (tmp_path / name).read_text() == "results"


def test_a_directory_is_no_file(tmp_path: Path, report: Report) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        save_report(report, "html", tmp_path)


def test_a_place_that_cannot_be_written_is_one_clear_error(tmp_path: Path, report: Report) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GputaxError, match="cannot write"):
        save_report(report, "json", tmp_path / "file" / "r.json")


def test_without_the_renderer_tables_are_left_and_the_page_says_so(
    tmp_path: Path, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(chart: object) -> str:
        raise svg.ChartsUnavailable("charts cannot be drawn", next_step="pip install vl-convert-python")

    monkeypatch.setattr(html_page, "inline_svg", missing)
    monkeypatch.setattr(output, "charts_available", lambda: False)
    save_report(report, "html", tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert "pip install vl-convert-python" in text
    assert "+3.2" in text
    assert save_report(report, "markdown", tmp_path / "r.md") == (tmp_path / "r.md",)
