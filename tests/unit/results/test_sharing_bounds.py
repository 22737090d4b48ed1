"""A sharing document is held against what can be before a page is made of it, and so are the samples beside it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from gputax.errors import ResultsError
from gputax.report.sources import SharingSource, Sources, read_sources
from gputax.report.story import build_report
from gputax.results.documents.sharing import SHARING_NAME, SharingRecord, refuse_nonsense
from gputax.results.files import write_text
from gputax.results.reading import RUN
from gputax.results.store import ResultDirectory
from tests.builders.documents import columns
from tests.builders.shared_documents import (
    cross_check,
    figure,
    gpu_record,
    neighbour,
    neighbours_record,
    shared_cell,
    shared_row,
    sharing_record,
    tenant,
)


def of_cell(**changes: Any) -> SharingRecord:
    return sharing_record(("mps",), (7,), cells=(shared_cell("mps", 7).model_copy(update=changes),))


def of_tenant(**changes: Any) -> SharingRecord:
    return of_cell(results=(tenant(1, "mps", 7, "c", **changes),))


def of_row(**changes: Any) -> SharingRecord:
    return sharing_record(("mps",), (7,), rows=(shared_row("mps", 7, **changes),), cells=())


def of_neighbour(**changes: Any) -> SharingRecord:
    return neighbours_record(neighbours=(neighbour(**changes),))


CELL, ROW, BESIDE = r"cells.0 \(mps-t7-r1\)", r"rows.0 \(mps, 7\)", r"neighbours.0 \(proxy beside memory\)"
NONSENSE: dict[str, tuple[SharingRecord, str]] = {
    "a cell's latency": (of_cell(mean_ms=-1.5), rf"{CELL}.mean_ms is -1.5, but must be above 0"),
    "a cell's percentile": (of_cell(p99_ms=-1.0), rf"{CELL}.p99_ms is -1,"),
    "a cell without latency": (of_cell(mean_ms=0.0), rf"{CELL}.mean_ms is 0,"),
    "a latency that is none": (of_cell(mean_ms=math.nan), rf"{CELL}.mean_ms is nan,"),
    "a cell's rate": (of_cell(aggregate_per_s=-3.0), rf"{CELL}.aggregate_per_s is -3,"),
    "an endless rate": (of_cell(aggregate_per_s=math.inf), rf"{CELL}.aggregate_per_s is inf,"),
    "fairness above 1": (of_cell(jain=1.2), rf"{CELL}.jain is 1.2, but must be from 0 to 1"),
    "fairness below 0": (of_cell(jain=-0.1), rf"{CELL}.jain is -0.1, but must be from 0 to 1"),
    "an overlap above 1": (of_cell(overlap_share=1.5), rf"{CELL}.overlap_share is 1.5,"),
    "a window": (of_cell(window_s=-1.0), rf"{CELL}.window_s is -1, but must be at least 0"),
    "no tenants": (of_cell(tenants=0), rf"{CELL}.tenants is 0, but must be at least 1"),
    "a switch": (of_cell(switched_s=-1.0), rf"{CELL}.switched_s is -1,"),
    "what Prometheus said": (of_cell(cross_check=cross_check(-5.0)), rf"{CELL}.cross_check.prometheus_ms is -5"),
    "a tenant's latency": (of_tenant(mean_ms=-2.0), rf"{CELL}.results.0.mean_ms is -2,"),
    "a tenant's rate": (of_tenant(throughput_per_s=-2.0), rf"{CELL}.results.0.throughput_per_s is -2,"),
    "a tenant's count": (of_tenant(inferences=-2), rf"{CELL}.results.0.inferences is -2,"),
    "a tenant's errors": (of_tenant(errors=-2), rf"{CELL}.results.0.errors is -2,"),
    "a tenant's share": (of_tenant(entitlement_share=-0.2), rf"{CELL}.results.0.entitlement_share is -0.2,"),
    "more than the device": (of_tenant(entitlement_share=1.2), rf"{CELL}.results.0.entitlement_share is 1.2,"),
    "a row's latency": (of_row(mean_ms=figure(-9.0)), rf"{ROW}.mean_ms.value is -9,"),
    "a row's slowest": (of_row(worst_tenant_mean_ms=figure(-9.0)), rf"{ROW}.worst_tenant_mean_ms.value is -9,"),
    "a row's rate": (of_row(aggregate_per_s=figure(-9.0)), rf"{ROW}.aggregate_per_s.value is -9,"),
    "a row's fairness": (of_row(jain=figure(3.0)), rf"{ROW}.jain.value is 3,"),
    "a row's share": (of_row(entitlement_share=7.0), rf"{ROW}.entitlement_share is 7,"),
    "a row's slowdown": (of_row(slowdown=figure(-1.0)), rf"{ROW}.slowdown.value is -1,"),
    "a victim's latency": (of_neighbour(alone_ms=-1.0), rf"{BESIDE}.alone_ms is -1,"),
    "a victim's beside": (of_neighbour(beside_ms=-1.0), rf"{BESIDE}.beside_ms is -1,"),
    "less than no time": (of_neighbour(slowdown_percent=figure(-101.0)), rf"{BESIDE}.slowdown_percent.value is -101,"),
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_what_cannot_be_is_refused_by_the_name_of_its_field(tmp_path: Path, kind: str) -> None:
    record, message = NONSENSE[kind]
    (tmp_path / SHARING_NAME).write_text(record.model_dump_json())
    if kind in ("a latency that is none", "an endless rate"):  # JSON has no such numbers: our writer makes them null
        with pytest.raises(ResultsError, match=message):
            refuse_nonsense(record, "here")
        return
    with pytest.raises(ResultsError, match=message) as caught:
        read_sources([tmp_path])
    assert caught.value.where.endswith(SHARING_NAME)
    assert "measure again" in caught.value.next_step


POSSIBLE: dict[str, SharingRecord] = {
    "stand-ins": sharing_record(),
    "a GPU with an invalid cell": gpu_record(),
    "neighbours": neighbours_record(),
    "fairness by the last digit": of_cell(jain=1.0000000000000002, overlap_share=1.0000000001),
    "nothing done in a cell that does not count": of_cell(valid=False, aggregate_per_s=0.0, mean_ms=None),
    "a tenant that did nothing where it does not count": of_cell(
        valid=False, results=(tenant(1, "mps", 7, "c", inferences=0, throughput_per_s=0.0, mean_ms=0.0),)
    ),
    "refused percentiles": of_row(p99_ms=figure(None), slowdown=figure(None)),
    "a neighbour that speeds up": of_neighbour(percent=-40.0),
}


@pytest.mark.parametrize("kind", POSSIBLE)
def test_what_can_be_is_not_refused(kind: str) -> None:
    refuse_nonsense(POSSIBLE[kind], "here")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two cells of one tenant each, and their samples, as `gputax share` leaves them; the numbers are made up."""
    cells = tuple(
        shared_cell("mps", 1, repeat, results=(tenant(1, "mps", 1, "c", samples_file=f"samples/r{repeat}.parquet"),))
        for repeat in (1, 2)
    )
    store = ResultDirectory(tmp_path / "share", RUN)
    store.write_text(SHARING_NAME, sharing_record(("mps",), (1,), cells=cells).model_dump_json())
    for repeat in (1, 2):
        store.write_samples(f"samples/r{repeat}.parquet", columns())
    store.close()
    return tmp_path / "share"


def warnings_in(directory: Path) -> list[tuple[str, str]]:
    report = build_report(read_sources([directory]))
    return [(fact.text, fact.tone) for fact in report.warnings if "cannot be read" in fact.text]


def test_whole_samples_need_no_word(directory: Path) -> None:
    assert warnings_in(directory) == []


@pytest.mark.parametrize("kept", [0, 4, 8, 100, -1])
def test_samples_that_are_cut_are_told_in_the_page(directory: Path, kept: int) -> None:
    file = directory / "samples" / "r2.parquet"
    file.write_bytes(file.read_bytes()[:kept])
    ((text, tone),) = warnings_in(directory)
    assert text.startswith("yolos-small in bare: cannot be read: samples/r2.parquet: truncated, or not a Parquet file.")
    assert tone == "fail"


def test_another_file_under_the_name_of_samples_is_told(directory: Path) -> None:
    (directory / "samples" / "r1.parquet").write_bytes(b"time,latency\n" * 50)
    ((text, _),) = warnings_in(directory)
    assert "samples/r1.parquet" in text


def test_missing_samples_are_told_and_are_no_failure(directory: Path) -> None:
    (directory / "samples" / "r1.parquet").unlink()
    ((text, tone),) = warnings_in(directory)
    assert "cannot be read: samples/r1.parquet: missing." in text
    assert tone == ""


def test_samples_of_neighbours_are_looked_at_although_no_row_names_them(tmp_path: Path) -> None:
    write_text(tmp_path / SHARING_NAME, neighbours_record().model_dump_json())
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / "pairs.parquet").write_bytes(b"PAR1" + bytes(96))
    ((text, _),) = warnings_in(tmp_path)
    assert "samples/pairs.parquet" in text


def test_a_sharing_document_cannot_name_samples_outside_its_directory(tmp_path: Path) -> None:
    write_text(tmp_path / SHARING_NAME, of_tenant(samples_file="../../secret.parquet").model_dump_json())
    with pytest.raises(ResultsError, match="outside its directory"):
        read_sources([tmp_path])


def test_what_was_just_measured_has_all_its_samples() -> None:
    report = build_report(Sources(sharing=(SharingSource("here/sharing.json", sharing_record()),)))
    assert not [fact for fact in report.warnings if "cannot be read" in fact.text]
