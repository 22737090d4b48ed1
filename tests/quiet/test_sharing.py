"""Sharing held against the truth: tenants that cannot disturb each other, that must not, and that have to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gputax.measure.share.execution import ShareRequest, measure_sharing
from gputax.measure.view import SilentView
from gputax.plan.cells import Setup
from gputax.plan.techniques import SharePlan
from gputax.results.documents.sharing import SharedRow, SharingRecord
from gputax.sharing.bare import BareShared
from tests.standins import control_groups

# Tenants of one thread, of which two cores can serve two at a time.
CORES = sorted(os.sched_getaffinity(0))[:2]
SLEEPING = Setup("resnet50", engine="synthetic:latency_us=20000", sample_count=1, max_batch=1)
COMPUTING = Setup("resnet50", threads=1, sample_count=1, max_batch=1)


@pytest.fixture(autouse=True)
def _two_cores() -> object:
    """Bind this process, and so its tenants, to two cores, whatever the machine has."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(CORES))
    yield
    os.sched_setaffinity(0, before)


def share(directory: Path, technique: str, setup: Setup, slices: int = 0) -> SharingRecord:
    plan = SharePlan("bare", (technique,), (1, 3), setup, repeats=1, warmup_s=0.5, window_s=3.0, slices=slices)
    record = measure_sharing(ShareRequest(plan, directory), BareShared(), SilentView())
    assert record.complete, record.failures
    assert all(cell.valid for cell in record.cells), [cell.warnings for cell in record.cells]
    return record


def rows(record: SharingRecord) -> dict[int, SharedRow]:
    return {row.tenants: row for row in record.rows}


def value(row: SharedRow, name: str) -> float:
    found = getattr(row, name).value
    assert found is not None
    return float(found)


def test_tenants_that_only_sleep_do_not_disturb_each_other(tmp_path: Path) -> None:
    record = share(tmp_path / "o", "cpu-shared", SLEEPING)
    three = rows(record)[3]
    assert value(three, "slowdown") == pytest.approx(1.0, abs=0.1)
    assert value(three, "jain") == pytest.approx(1.0, abs=0.01)
    assert value(three, "p50_ms") == pytest.approx(20.0, rel=0.02)
    assert value(three, "aggregate_per_s") == pytest.approx(150.0, rel=0.1)
    assert min(cell.overlap_share for cell in record.cells) >= 0.9


def test_on_a_common_core_three_tenants_slow_each_other_down(tmp_path: Path) -> None:
    # On two cores it would be 1.5; one core shows it threefold, and through the noise of others too.
    os.sched_setaffinity(0, set(CORES[:1]))
    record = share(tmp_path / "o", "cpu-shared", COMPUTING)
    three = rows(record)[3]
    assert value(three, "slowdown") >= 1.3
    assert value(three, "jain") > 0.9
    assert min(cell.overlap_share for cell in record.cells) >= 0.9


@control_groups.needed
def test_with_a_quota_the_others_load_does_not_matter(tmp_path: Path) -> None:
    # Slices of a sixth: three tenants leave half of the machine to everybody else, who must not decide this test.
    record = share(tmp_path / "o", "cpu-quota", COMPUTING, slices=6)
    one, three = rows(record)[1], rows(record)[3]
    # The speed of a virtual CPU varies by a third between windows; without quotas three would be three times as slow.
    assert value(three, "slowdown") < 1.5
    assert value(three, "mean_ms") / value(one, "mean_ms") > 0.6
    assert value(three, "aggregate_per_s") > 2.0 * value(one, "aggregate_per_s"), "each has its own slice"
    assert one.entitlement == three.entitlement == "1/6 of 2 cores"
    throttled = [result.evidence["throttled_periods"] for cell in record.cells for result in cell.results]
    assert min(throttled) > 0, "the quota was felt"
