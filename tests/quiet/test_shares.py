"""Asked against obtained, held against the truth: a quota that holds, one that lies, equals, and the proxy."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from gputax.api import own_model
from gputax.measure.share.execution import ShareRequest, measure_sharing
from gputax.measure.view import SilentView
from gputax.plan.cells import Setup
from gputax.plan.shares import asking
from gputax.plan.techniques import SharePlan, Technique
from gputax.results.documents.sharing import ObtainedRow, SharingRecord
from gputax.sharing.bare import BareShared
from gputax.sharing.place import Tenant
from tests.builders.small_models import small_classifier
from tests.standins import control_groups

Key = tuple[str, int]
BATCH = 16


class Lying(BareShared):
    """A machine that gives a tenant three fifths of what it is asked for, and says that it gave all of it."""

    def asking(self, technique: Technique, shares: Sequence[float], setup: Setup) -> list[Tenant]:
        less = [share if share >= 1.0 else 0.6 * share for share in shares]
        return [
            dataclasses.replace(tenant, asked=dataclasses.replace(tenant.asked, compute=share))
            for tenant, share in zip(super().asking(technique, less, setup), shares, strict=True)
            if tenant.asked is not None
        ]


def measured(
    folder: Path,
    technique: str,
    setup: Setup,
    shares: tuple[float, ...],
    place: BareShared | None = None,
    repeats: int = 2,
) -> SharingRecord:
    base = SharePlan("bare", (technique,), (len(shares),), setup, repeats=repeats, warmup_s=0.3, window_s=1.5)
    base = dataclasses.replace(base, batch_size=setup.max_batch)
    # Wide enough for the caches and hyperthreads that tenants share on any machine.
    plan = asking(base, shares, tolerance_percent=15.0)
    record = measure_sharing(
        ShareRequest(plan, folder / "o", accept_disturbed=True), place or BareShared(), SilentView()
    )
    assert record.complete, record.failures
    assert all(cell.valid for cell in record.cells), [cell.warnings for cell in record.cells]
    return record


def by_key(record: SharingRecord, resource: str = "compute") -> dict[Key, ObtainedRow]:
    return {(row.situation, row.tenant): row for row in record.obtained if row.resource == resource}


def value(row: ObtainedRow) -> float:
    assert row.obtained.value is not None
    return row.obtained.value


@pytest.fixture
def computing(tmp_path: Path) -> Setup:
    """A batch of several milliseconds on one core: beside it, what Python does for a run does not count."""
    own = own_model(small_classifier(tmp_path / "m.onnx", hidden=2048))
    return Setup(own.name, own=own, sample_count=BATCH, max_batch=BATCH)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Setup:
    """Kernels of 1 ms on the software device's timeline: its shares are exact, whatever the CPUs do."""
    monkeypatch.setenv("GPUTAX_SOFT_KERNEL_US", "1000")
    return Setup("micro:launch", engine="driver", device="software", sample_count=1, max_batch=1)


@control_groups.needed
def test_a_quota_gives_about_the_share_that_was_asked_for(tmp_path: Path, computing: Setup) -> None:
    rows = by_key(measured(tmp_path, "cpu-quota", computing, (0.3, 0.7)))
    # A virtual CPU's speed varies by a third between windows on a busy host; the device's timeline below is exact.
    for row in rows.values():
        assert value(row) == pytest.approx(row.asked, rel=0.5), row
    assert value(rows["alone", 1]) < value(rows["alone", 2])


def test_equal_tenants_do_not_fail_and_one_that_gets_less_than_it_asked_for_never_passes(
    tmp_path: Path, launches: Setup
) -> None:
    honest = by_key(measured(tmp_path / "honest", "proxy", launches, (0.5, 0.5)))
    assert not [row for row in honest.values() if row.verdict == "fail"]
    # Two repeats do not decide sixteen bounds together: tests/unit/measure/share/test_obtained.py has the verdicts.
    lied = by_key(measured(tmp_path / "lied", "proxy", launches, (0.5, 0.5), Lying()))
    assert value(lied["alone", 1]) == pytest.approx(0.3, rel=0.15)
    assert lied["alone", 1].verdict != "pass", lied["alone", 1]


def test_places_of_the_proxy_have_their_shares_of_time_and_memory(tmp_path: Path, launches: Setup) -> None:
    record = measured(tmp_path, "proxy", launches, (0.3, 0.7))
    # Kernels of 1 ms: the whole device is 1000 of them in a second, and alone a place has exactly its part of that.
    rates = {cell.cell: cell.results[0].throughput_per_s for cell in record.cells if cell.tenants == 1}
    for cell, rate in rates.items():
        truth = 1000.0 * {"whole": 1.0, "alone1": 0.3, "alone2": 0.7}[cell.split("-")[1]]
        assert 0.8 * truth < rate < 1.05 * truth, (cell, rate)
    for (situation, _), row in by_key(record).items():
        assert value(row) == pytest.approx(row.asked, rel=0.1 if situation == "alone" else 0.2), row
    for row in by_key(record, "memory").values():
        assert (row.verdict, value(row)) == ("pass", pytest.approx(row.asked, rel=0.01)), row


def test_without_a_time_of_its_own_the_device_is_not_asked_for_compute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUTAX_SOFT_KERNEL_US", raising=False)
    setup = Setup("micro:launch", engine="driver", device="software", sample_count=1, max_batch=1)
    record = measured(tmp_path, "proxy", setup, (0.5, 0.5), repeats=1)
    assert {row.verdict for row in by_key(record).values()} == {None}
    assert {row.verdict for row in by_key(record, "memory").values()} == {"pass"}
