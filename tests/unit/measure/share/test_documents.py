"""From cells to rows: intervals over repeats, slowdowns, and cells that do not count."""

from __future__ import annotations

import pytest

from gputax.environments.environment import Evidence
from gputax.measure.share.cell import load_seconds
from gputax.measure.share.documents import (
    described_sharing,
    empty_sharing,
    shared_cell_document,
    shared_rows,
    shown_cell,
    shown_figures,
)
from gputax.plan.cells import Setup
from gputax.plan.techniques import ShareCell, SharePlan
from tests.builders.shared_cells import document, measurement

PLAN = SharePlan("bare", ("cpu-shared", "cpu-quota"), (1, 3), Setup("yolos-small"), repeats=2)


class TestRows:
    def test_one_for_each_technique_and_number_of_tenants(self) -> None:
        cells = [
            document(technique, tenants, repeat, 10.0)
            for repeat in (1, 2)
            for technique in ("cpu-quota", "cpu-shared")
            for tenants in (3, 1)
        ]
        rows = shared_rows(cells)
        assert [(row.technique, row.tenants, row.repeats) for row in rows] == [
            ("cpu-shared", 1, 2), ("cpu-shared", 3, 2), ("cpu-quota", 1, 2), ("cpu-quota", 3, 2),
        ]  # fmt: skip

    def test_slowdown_is_against_one_tenant_of_the_same_technique_and_repeat(self) -> None:
        cells = [
            document("cpu-shared", 1, 1, 10.0), document("cpu-shared", 3, 1, 30.0),
            document("cpu-shared", 1, 2, 20.0), document("cpu-shared", 3, 2, 60.0),
            document("cpu-quota", 3, 1, 99.0),
        ]  # fmt: skip
        alone, shared, quota = shared_rows(cells)
        assert alone.slowdown.value == 1.0
        assert alone.slowdown.ci95 is None
        assert shared.slowdown.value == pytest.approx(3.0)
        assert shared.slowdown.ci95 == pytest.approx((3.0, 3.0), rel=0.02), "a slow repeat is slow for both"
        assert quota.slowdown.value is None, "nothing to compare with"

    def test_an_invalid_cell_is_in_no_row(self) -> None:
        cells = [document("cpu-shared", 1, 1, 10.0), document("cpu-shared", 1, 2, 99.0, valid=False)]
        (row,) = shared_rows(cells)
        assert (row.repeats, row.mean_ms.value, row.mean_ms.ci95) == (1, pytest.approx(10.0), None)
        assert shared_rows([document("cpu-shared", 1, 1, 1.0, valid=False)]) == ()

    def test_a_refused_percentile_stays_refused(self) -> None:
        (row,) = shared_rows([document("cpu-shared", 1, repeat, 10.0) for repeat in (1, 2)])
        assert row.p50_ms.value == pytest.approx(10.0)
        assert row.p90_ms.value is None

    def test_the_worst_tenant_is_shown(self) -> None:
        cell = document("cpu-shared", 3, 1, 10.0)
        slow = cell.results[1].model_copy(update={"mean_ms": 14.0, "entitlement": "less", "entitlement_share": 0.5})
        (row,) = shared_rows([cell.model_copy(update={"results": (cell.results[0], slow, cell.results[2])})])
        assert row.worst_tenant_mean_ms.value == pytest.approx(14.0)
        assert (row.entitlement, row.entitlement_share) == ("all / less", None)


class TestCell:
    def test_holds_every_tenant_with_its_entitlement_and_evidence(self) -> None:
        cell = shared_cell_document(measurement(ShareCell("cpu-shared", 3, 1)), "2026-01-01", 2)
        assert (cell.cell, cell.session, cell.valid, cell.switched_s) == ("cpu-shared-t3-r1", 2, True, 0.5)
        assert [result.tenant for result in cell.results] == [1, 2, 3]
        assert {result.entitlement for result in cell.results} == {"up to all 2 cores"}
        assert cell.mean_ms == pytest.approx(10.0)
        assert cell.aggregate_per_s == pytest.approx(300.0)
        assert cell.evidence["switched"] == {"node": "here"}

    @pytest.mark.parametrize("lie", [{"active": False}, {}], ids=["denied", "nothing said"])
    def test_without_evidence_it_is_invalid(self, lie: dict[str, object]) -> None:
        measured = measurement(ShareCell("cpu-shared", 1, 1), evidence=Evidence(lie))
        assert not shared_cell_document(measured, "", 1).valid

    def test_one_unproven_tenant_is_enough(self) -> None:
        measured = measurement(ShareCell("cpu-shared", 2, 1))
        evidences = (Evidence({"active": True}), Evidence({"active": False}))
        proof = measured.proof.__class__(evidences, measured.proof.described)
        assert not measurement(ShareCell("cpu-shared", 2, 1), proof=proof).valid

    def test_is_shown_as_the_sum_of_its_tenants(self) -> None:
        measured = measurement(ShareCell("cpu-shared", 3, 1))
        shown = shown_figures(measured, "cpu")
        assert (shown.cell, shown.device, shown.valid) == ("cpu-shared-t3-r1", "cpu", True)
        assert shown.throughput_per_s == pytest.approx(300.0)
        assert shown_cell(PLAN, measured.cell, 2).environment == "bare+cpu-shared"


class TestRecord:
    def test_names_its_device_and_its_stand_ins(self) -> None:
        record = described_sharing(
            empty_sharing(PLAN, "2026-01-01", "gputax share"), measurement(ShareCell("cpu-shared", 1, 1))
        )
        assert record.device_label == "CPU (Test CPU), not a GPU"
        assert record.claim.endswith("cpu-shared and cpu-quota are stand-ins, not techniques of a GPU")
        assert set(record.fingerprint["setups"]) == {"cpu-shared"}

    def test_knows_its_cells_and_how_to_do_it_again(self) -> None:
        record = empty_sharing(PLAN, "2026-01-01", "gputax share --repeats 2")
        assert record.cells_planned == tuple(cell.id for cell in PLAN.cells())
        assert (record.command, record.plan_id, record.complete) == ("gputax share --repeats 2", PLAN.id, False)


@pytest.mark.parametrize(
    ("tenants", "slowest_ms", "seconds"), [(3, 5, 12.0), (3, 2000, 22.0), (1, 3000, 17.0), (3, 60_000, 120.0)]
)
def test_slow_tenants_run_longer_than_asked_but_not_for_ever(tenants: int, slowest_ms: int, seconds: float) -> None:
    assert load_seconds(PLAN, tenants, slowest_ms * 1_000_000) == seconds
