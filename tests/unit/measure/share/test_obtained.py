"""Asked against obtained: known rates give known shares and the right verdicts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pytest

from gputax.measure.share.obtained import obtained_rows
from gputax.plan.cells import Setup
from gputax.plan.shares import AskingPlan, asking
from gputax.plan.techniques import ShareCell, SharePlan
from gputax.results.documents.sharing import ObtainedRow, SharedCell, TenantResult

WHOLE_PER_S, WHOLE_BYTES = 1000.0, 1 << 30
REPEATS = 5
Key = tuple[str, int]
"""Situation and tenant."""


def plan(*shares: float, repeats: int = REPEATS) -> AskingPlan:
    setup = Setup("resnet50")
    return asking(SharePlan("bare", ("cpu-quota",), (len(shares),), setup, repeats=repeats), shares)


def cells(
    asked: AskingPlan,
    obtained: Mapping[Key, float] | None = None,
    *,
    memory: Mapping[Key, float] | None = None,
    exact: bool = True,
    compute: bool = True,
    noise: float = 0.002,
    disturbed: tuple[str, ...] = (),
) -> tuple[SharedCell, ...]:
    """Return cells in which each tenant got what it asked for, or what `obtained` says."""
    draw = np.random.default_rng(1)

    def one(cell: ShareCell, place: int) -> TenantResult:
        tenant = place + 1 if cell.number == 0 else cell.number
        key = (cell.situation, tenant if cell.number == 0 or place == 0 else 0)
        share = (obtained or {}).get(key, cell.shares[place])
        rate = WHOLE_PER_S * share * float(np.exp(draw.normal(0.0, noise)))
        taken = None if memory is None else int(WHOLE_BYTES * memory.get(key, cell.shares[place]))
        return TenantResult(
            tenant=place + 1, entitlement="a share", entitlement_share=None, inferences=100, throughput_per_s=rate,
            mean_ms=1.0, samples_file="s", asked_compute=cell.shares[place] if compute else None,
            asked_memory=None if memory is None else cell.shares[place], asked_exactly=exact, memory_bytes=taken,
        )  # fmt: skip

    return tuple(
        SharedCell.model_validate(
            {
                "cell": cell.id,
                "technique": cell.technique,
                "tenants": cell.tenants,
                "repeat": cell.repeat,
                "situation": cell.situation,
                "number": cell.number,
                "started_at": "2026-01-01",
                "window_s": 5.0,
                "overlap_share": 1.0,
                "aggregate_per_s": 1.0,
                "jain": 1.0,
                "valid": True,
                "disturbed": disturbed,
                "results": tuple(one(cell, place) for place in range(cell.tenants)),
            }
        )
        for cell in asked.cells()
    )


def by_key(rows: tuple[ObtainedRow, ...], resource: str = "compute") -> dict[Key, ObtainedRow]:
    return {(row.situation, row.tenant): row for row in rows if row.resource == resource}


def test_tenants_that_get_what_they_asked_for_pass_in_every_situation() -> None:
    asked = plan(0.3, 0.7)
    rows = by_key(obtained_rows(asked, cells(asked), accepts_disturbed=False))
    assert set(rows) == set(itertools.product(("alone", "equals", "greedy"), (1, 2)))
    assert {row.verdict for row in rows.values()} == {"pass"}
    for (_, tenant), row in rows.items():
        assert row.asked == (0.3, 0.7)[tenant - 1]
        assert row.obtained.value == pytest.approx(row.asked, rel=0.01)
        low, high = row.obtained.ci95 or (None, None)
        assert low is not None
        assert high is not None
        assert low < row.asked < high


def test_a_tenant_that_gets_less_beside_a_greedy_neighbour_fails_there_alone() -> None:
    asked = plan(0.1, 0.9)
    found = cells(asked, {("greedy", 1): 0.07, ("equals", 1): 0.1})
    rows = by_key(obtained_rows(asked, found, accepts_disturbed=False))
    assert rows["greedy", 1].verdict == "fail"
    assert "less than asked for" in rows["greedy", 1].reason
    assert {row.verdict for key, row in rows.items() if key != ("greedy", 1)} == {"pass"}


def test_a_cap_that_does_not_hold_fails_and_turns_that_others_leave_do_not() -> None:
    asked = plan(0.5, 0.5)
    found = {("alone", 1): 0.98}
    capped = by_key(obtained_rows(asked, cells(asked, found), accepts_disturbed=False))["alone", 1]
    assert capped.verdict == "fail"
    assert "the cap does not hold" in capped.reason
    turns = by_key(obtained_rows(asked, cells(asked, found, exact=False), accepts_disturbed=False))["alone", 1]
    assert (turns.verdict, turns.exactly) == ("pass", False)


def test_what_lies_at_the_tolerance_or_was_measured_once_is_undecided() -> None:
    asked = plan(0.4, 0.6)
    rows = by_key(obtained_rows(asked, cells(asked, {("alone", 1): 0.38}), accepts_disturbed=False))
    assert rows["alone", 1].verdict == "inconclusive"
    once = plan(0.4, 0.6, repeats=1)
    single = by_key(obtained_rows(once, cells(once, {("alone", 1): 0.1}), accepts_disturbed=False))["alone", 1]
    assert (single.verdict, single.obtained.ci95) == ("inconclusive", None)
    assert "--repeats" in single.reason


def test_nothing_is_judged_without_the_whole_device_or_on_a_disturbed_machine() -> None:
    asked = plan(0.4, 0.6)
    without = tuple(cell for cell in cells(asked) if cell.situation != "whole")
    rows = obtained_rows(asked, without, accepts_disturbed=False)
    assert {(row.verdict, row.obtained.value) for row in rows} == {("not comparable", None)}
    busy = cells(asked, disturbed=("load",))
    assert {row.verdict for row in obtained_rows(asked, busy, accepts_disturbed=False)} == {"not comparable"}
    assert {row.verdict for row in obtained_rows(asked, busy, accepts_disturbed=True)} == {"pass"}


def test_rates_are_not_shares_of_a_device_that_one_tenant_does_not_fill() -> None:
    asked = plan(0.5, 0.5)
    rows = by_key(obtained_rows(asked, cells(asked, {("equals", 1): 0.9, ("equals", 2): 0.9}), accepts_disturbed=False))
    assert {row.verdict for row in rows.values()} == {"not comparable"}
    assert "together the tenants did 180 %" in rows["alone", 1].reason


def test_memory_is_judged_by_what_could_be_allocated() -> None:
    asked = plan(0.3, 0.7)
    found = cells(asked, memory={("greedy", 1): 0.2})
    rows = obtained_rows(asked, found, accepts_disturbed=False)
    memory = by_key(rows, "memory")
    assert memory["greedy", 1].verdict == "fail"
    assert {row.verdict for key, row in memory.items() if key != ("greedy", 1)} == {"pass"}
    low, high = memory["alone", 1].obtained.ci95 or (None, None)
    assert low is not None
    assert high is not None
    assert high - low == pytest.approx(1 / 1024, rel=1e-3)


def test_a_share_that_nobody_asked_for_is_shown_and_not_judged() -> None:
    asked = plan(0.5, 0.5)
    rows = obtained_rows(asked, cells(asked, compute=False), accepts_disturbed=False)
    assert {(row.verdict, row.asked, row.reason) for row in rows} == {(None, None, "no share of it was asked for")}
    assert all(row.obtained.value == pytest.approx(0.5, rel=0.02) for row in rows)


def test_tenants_that_ask_for_the_same_share_one_row_alone_and_have_their_own_together() -> None:
    asked = plan(0.25, 0.25, 0.5)
    rows = by_key(obtained_rows(asked, cells(asked), accepts_disturbed=False))
    assert set(rows) == {
        ("alone", 1), ("alone", 3), ("greedy", 1), ("greedy", 3), ("equals", 1), ("equals", 2), ("equals", 3),
    }  # fmt: skip
    assert rows["alone", 1].same_as == (2,)
    assert rows["equals", 1].same_as == ()
