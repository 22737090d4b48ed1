"""Only valid cells are used, nonsense is named, and what others published stays theirs."""

from __future__ import annotations

import json
import math
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from gputax.advise.table import PUBLISHED, from_record, published_table, read_table
from gputax.errors import ResultsError, UsageError
from gputax.results.documents.base import WarningRecord
from gputax.results.documents.sharing import NeighbourRow, SharedFigure
from tests.builders.sharing_records import CPU, cell, cells, contention, partition, record


def test_the_users_mean_is_all_time_over_all_inferences() -> None:
    made = cell("mps", 2, 1, 10.0)
    fast, slow = made.results
    uneven = (fast, slow.model_copy(update={"mean_ms": 30.0, "inferences": 500, "p99_ms": 60.0}))
    table = from_record(record(made.model_copy(update={"results": uneven})))
    (run,) = table.series[0].points[0].runs
    assert run.mean_ms == pytest.approx((10 * 1000 + 30 * 500) / 1500)
    assert run.percentiles_ms["p99"] / run.mean_ms == pytest.approx(math.sqrt(1.5 * 2.0))
    assert [notice.code for notice in table.series[0].notices] == ["uneven-tenants"]
    assert "80 % above" in table.series[0].notices[0].text


def test_figures_over_all_inferences_are_taken_where_the_document_has_them() -> None:
    made = cell("mps", 2, 1, 10.0).model_copy(update={"mean_ms": 11.0, "p50_ms": 10.5, "p99_ms": 17.0})
    (run,) = from_record(record(made)).series[0].points[0].runs
    assert run.mean_ms == 11.0
    assert run.percentiles_ms == {"p50": 10.5, "p99": 17.0}, "p90 has too few samples over all, so it is not guessed"


def test_invalid_cells_are_not_used_and_counted() -> None:
    good = cells("mps", contention(), repeats=2)
    bad = [cell("mps", 7, 9, 1.0, valid=False), cell("mps", 5, 9, 1.0)]
    short = bad[1].model_copy(update={"results": bad[1].results[:3]})
    table = from_record(record(*good, bad[0], short, complete=False))
    assert sum(len(point.runs) for point in table.series[0].points) == len(good)
    assert [(notice.code, notice.value) for notice in table.notices] == [("cells-not-used", 2), ("unfinished", None)]


def test_warnings_travel_with_the_numbers_each_kind_once_with_its_worst_case() -> None:
    busy = [WarningRecord(code="busy", text=f"Others used {share} %.", value=share) for share in (12, 55)]
    found = [cell("mps", 1, run, 10.0, warnings=(warning,)) for run, warning in enumerate(busy, start=1)]
    table = from_record(record(*found, warnings=(WarningRecord(code="device-auto", text="auto chose cpu"),)))
    assert [notice.text for notice in table.notices] == [
        "auto chose cpu", "Others used 55 %. (mps-t1-r2; worst of 2 cells)",
    ]  # fmt: skip


def test_a_percentile_that_one_tenant_lacks_is_lacking() -> None:
    made = cell("mps", 2, 1, 10.0)
    lacking = made.results[1].model_copy(update={"p99_ms": None})
    table = from_record(record(made.model_copy(update={"results": (made.results[0], lacking)})))
    assert set(table.series[0].points[0].runs[0].percentiles_ms) == {"p50", "p90"}


def refusal_of(directory: Path, **figures: object) -> ResultsError:
    """Return the error for an experiment whose only cell has these figures for all tenants, or for its first one."""
    data = json.loads(record(cell("mps", 1, 1, 10.0)).model_dump_json())
    data["cells"][0] |= figures
    (directory / "sharing.json").write_text(json.dumps(data))
    with pytest.raises(ResultsError) as raised:
        read_table(str(directory))
    return raised.value


@pytest.mark.parametrize("field", ["mean_ms", "p99_ms"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -3.0])
def test_nonsense_in_a_valid_cell_is_named(tmp_path: Path, field: str, bad: float) -> None:
    first = json.loads(cell("mps", 1, 1, 10.0).results[0].model_dump_json())
    error = refusal_of(tmp_path, results=[{**first, field: bad}])
    assert error.what.startswith(f"cells.0 (mps-t1-r1).results.0.{field} is")
    assert error.where.endswith("sharing.json")
    assert "measure again" in error.next_step


@pytest.mark.parametrize(
    "change", [{"aggregate_per_s": 0.0}, {"aggregate_per_s": math.nan}, {"mean_ms": math.nan}, {"p99_ms": 0.0}]
)
def test_nonsense_of_all_tenants_together_is_named(tmp_path: Path, change: dict[str, Any]) -> None:
    assert refusal_of(tmp_path, **change).what.startswith(f"cells.0 (mps-t1-r1).{next(iter(change))} is")


def test_labels_and_claims_are_kept() -> None:
    table = from_record(record(*cells("cpu-shared", contention())))
    assert table.device_label == CPU
    assert table.stand_in
    assert not table.published
    assert table.claim == "CPU number, not a GPU's"
    assert not from_record(record(*cells("mps", contention()), device="cuda")).stand_in


@pytest.mark.parametrize(
    ("technique", "share", "slices", "capacity"),
    [
        ("mig", 1 / 7, 0, 7), ("mig", None, 4, 4), ("mig", None, 0, 3), ("cpu-quota", 0.25, 0, 4), ("mps", 0.14, 0, 7),
        ("mps", 1.0, 0, None), ("mps", None, 0, None), ("time-slicing", 0.2, 0, None), ("cpu-shared", 1.0, 0, None),
    ],
)  # fmt: skip
def test_room_for_tenants(technique: str, share: float | None, slices: int, capacity: int | None) -> None:
    found = [
        each.model_copy(
            update={"results": tuple(one.model_copy(update={"entitlement_share": share}) for one in each.results)}
        )
        for each in cells(technique, partition(), tenants=(1, 3), repeats=1)
    ]
    assert from_record(record(*found, plan={"slices": slices})).series[0].capacity == capacity


@pytest.mark.parametrize(
    ("cap_mb", "total_mb", "room"),
    [
        (10240.0, 81920.0, (8, "10 GB each of 80 GB")), (10240.0, 16384.0, (3, "10 GB each of 16 GB")),
        (10240.0, 10240.0, (None, "")), (None, 81920.0, (None, "")), (10240.0, None, (None, "")),
        ("10 GB", 81920.0, (None, "")), (0, 81920.0, (None, "")), (10240.0, math.nan, (None, "")),
    ],
)  # fmt: skip
def test_room_in_the_memory_where_the_evidence_tells_it(cap_mb: Any, total_mb: Any, room: tuple[int, str]) -> None:
    evidence = {"limits": {"memory_cap_mb": cap_mb}, "driver_reports": [{"memory_total_mb": total_mb}]}
    found = [cell("mps", count, 1, 10.0, evidence=evidence) for count in (1, 3)]
    (series,) = from_record(record(*found)).series
    assert (series.capacity, series.capacity_why) == room, "what was measured had room"


@pytest.mark.parametrize(
    "evidence", [{}, {"limits": None, "driver_reports": [None]}, {"limits": [], "driver_reports": 3}]
)
def test_evidence_without_memory_limits_nothing(evidence: dict[str, Any]) -> None:
    (series,) = from_record(record(cell("mps", 1, 1, 10.0, evidence=evidence))).series
    assert series.capacity is None


def test_a_neighbours_experiment_is_named_with_the_command_that_gives_what_is_needed(tmp_path: Path) -> None:
    beside = NeighbourRow(
        technique="cpu-shared", victim="resnet50, single-stream", aggressor="compute", pairs=3, alone_ms=10.0,
        beside_ms=15.0, slowdown_percent=SharedFigure(value=50.0),
    )  # fmt: skip
    made = record(neighbours=(beside,), plan={"victim": "single-stream", "aggressors": ["compute"]})
    (tmp_path / "sharing.json").write_text(made.model_dump_json())
    with pytest.raises(ResultsError, match="this is a neighbours experiment") as raised:
        read_table(str(tmp_path))
    assert "gputax share --env bare --tech cpu-shared --tenants 1,3,5,7 --out DIR" in raised.value.next_step
    both = record(*cells("cpu-shared", contention()), neighbours=(beside,))
    (tmp_path / "sharing.json").write_text(both.model_dump_json())
    assert read_table(str(tmp_path)).series


def test_a_cap_that_changes_between_cells_is_said() -> None:
    found = cells("mps", contention(), tenants=(1, 3), repeats=1)
    capped = found[0].results[0].model_copy(update={"entitlement_share": 0.5})
    series = from_record(record(found[0].model_copy(update={"results": (capped,)}), found[1])).series[0]
    assert [notice.code for notice in series.notices] == ["changing-cap"]
    assert series.capacity is None


def test_a_technique_of_a_newer_gputax_is_left_out_aloud() -> None:
    table = from_record(record(*cells("mps", contention()), cell("telepathy", 1, 1, 3.0)))
    assert [series.technique.name for series in table.series] == ["mps"]
    assert "telepathy" in table.notices[0].text


def test_a_directory_and_its_file_are_both_read(tmp_path: Path) -> None:
    (tmp_path / "sharing.json").write_text(record(*cells("mps", contention())).model_dump_json())
    assert read_table(str(tmp_path)) == read_table(str(tmp_path / "sharing.json"))


def test_a_directory_without_the_experiment_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no sharing experiment here") as raised:
        read_table(str(tmp_path))
    assert "gputax share" in raised.value.next_step


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("", "empty"), ("{", "invalid JSON"), ("[]", "not a sharing experiment"), ('{"schema_version": 9}', "newer")],
)
def test_broken_files_are_named(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "sharing.json").write_text(text)
    with pytest.raises(ResultsError, match=complaint) as raised:
        read_table(str(tmp_path))
    assert "sharing.json" in raised.value.where


def test_the_published_table_is_as_its_source_gives_it() -> None:
    table = published_table("a100-nos")
    given = {
        series.technique.name: [point.runs[0].mean_ms / 1000 for point in series.points] for series in table.series
    }
    assert given == {
        "time-slicing": pytest.approx(
            [0.08815048247208879, 0.2931403323839484, 0.4889516484510863, 0.6848803898344092]
        ),
        "mps": pytest.approx([0.08796154366177533, 0.1640018804617158, 0.2408641491144998, 0.3198182253208076]),
        "mig": pytest.approx([0.34236589893939284, 0.3413140464128765, 0.3453250103939391, 0.34424962169772633]),
    }
    assert all(series.tenants == (1, 3, 5, 7) for series in table.series)
    assert [series.capacity for series in table.series] == [8, 8, 7], "10 GB each of 80 GB; MIG has 7 slices"
    assert table.published
    assert "not measured by gputax" in table.device_label
    source = " ".join(table.source)
    for fact in ("nebuly-ai/nos", "AKS", "525.60.13", "last 2 minutes", "one run", "no spread", "no date"):
        assert fact in source


def test_published_data_ship_inside_the_package() -> None:
    (place,) = import_module("gputax.advise").__path__
    folder = Path(place) / "published"
    assert sorted(path.name for path in folder.iterdir()) == sorted(PUBLISHED.values())
    for name in PUBLISHED.values():
        assert tomllib.loads((folder / name).read_text())["project"]


def test_an_unknown_published_name_shows_the_known_ones() -> None:
    with pytest.raises(UsageError, match="unknown published table 'a100'") as raised:
        read_table("published:a100")
    assert "a100-nos" in raised.value.next_step
