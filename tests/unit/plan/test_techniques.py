"""The plan of a sharing experiment: its cells, their order, and what it refuses."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gputax.errors import UsageError
from gputax.plan.cells import Setup
from gputax.plan.engines import waiting_passively
from gputax.plan.techniques import DEFAULT_TECHNIQUES, TECHNIQUES, ShareCell, SharePlan

SETUP = Setup("yolos-small")
PLAN = SharePlan("bare", ("cpu-shared", "cpu-quota"), (1, 3, 5, 7), SETUP, repeats=3)


def test_every_repeat_visits_each_technique_once_and_each_number_of_tenants_within_it() -> None:
    cells = PLAN.cells()
    assert len(cells) == len(set(cells)) == 3 * 2 * 4
    for repeat in (1, 2, 3):
        seen = [cell for cell in cells if cell.repeat == repeat]
        techniques = [cell.technique for cell in seen]
        assert techniques == [techniques[0]] * 4 + [techniques[4]] * 4
        for technique in PLAN.techniques:
            assert sorted(cell.tenants for cell in seen if cell.technique == technique) == [1, 3, 5, 7]


def test_repeats_have_orders_of_their_own_which_the_seed_decides() -> None:
    orders = {tuple((c.technique, c.tenants) for c in PLAN.cells() if c.repeat == repeat) for repeat in (1, 2, 3)}
    assert len(orders) == 3
    assert PLAN.cells() == PLAN.cells()
    assert dataclasses.replace(PLAN, seed=8).cells() != PLAN.cells()


def test_exclusive_is_measured_with_one_tenant_only() -> None:
    plan = SharePlan("k8s", ("exclusive", "mps"), (1, 3), SETUP, repeats=1)
    assert sorted(cell.id for cell in plan.cells()) == ["exclusive-t1-r1", "mps-t1-r1", "mps-t3-r1"]


def test_the_device_is_cut_for_the_most_tenants_or_as_was_said() -> None:
    assert PLAN.parts == 7
    assert dataclasses.replace(PLAN, slices=14).parts == 14
    with pytest.raises(UsageError, match="7 tenants do not fit on a device with 3 slices") as raised:
        dataclasses.replace(PLAN, slices=3)
    assert "--slices 7" in raised.value.next_step


def test_the_id_follows_everything_that_shapes_a_number() -> None:
    changes: tuple[dict[str, Any], ...] = (
        {"window_s": 11.0},
        {"seed": 8},
        {"slices": 9},
        {"setup": Setup("resnet50")},
        {"tenants": (1, 3)},
    )
    assert len({PLAN.id, *(dataclasses.replace(PLAN, **change).id for change in changes)}) == 1 + len(changes)


@pytest.mark.parametrize(
    ("place", "techniques", "tenants", "complaint", "hint"),
    [
        ("bare", ("cpu-shard",), (1,), "unknown technique 'cpu-shard'", "did you mean 'cpu-shared'?"),
        ("bare", ("mps",), (1,), "mps does not exist in the environment bare", "--env k8s"),
        ("k8s", ("cpu-quota",), (1,), "cpu-quota does not exist in the environment k8s", "--env bare"),
        ("bare", ("cpu-quota",), (), "at least 1", "--tenants 1,3,5,7"),
        ("bare", ("cpu-quota",), (1, 100_000), "more than the maximum of 512", "--tenants 1,3,5,7"),
    ],
)
def test_what_cannot_be_is_refused(
    place: str, techniques: tuple[str, ...], tenants: tuple[int, ...], complaint: str, hint: str
) -> None:
    with pytest.raises(UsageError) as raised:
        SharePlan(place, techniques, tenants, SETUP)
    assert complaint in raised.value.what
    assert hint in raised.value.next_step


def test_the_default_techniques_exist_in_their_places_and_stand_ins_are_bare() -> None:
    for place, names in DEFAULT_TECHNIQUES.items():
        assert all(place in TECHNIQUES[name].places for name in names)
    assert {technique.name for technique in TECHNIQUES.values() if technique.stand_in} == set(
        DEFAULT_TECHNIQUES["bare"]
    )
    assert TECHNIQUES["mps"].environment("k8s") == "k8s+mps"


def test_a_cell_id_is_a_file_name() -> None:
    assert ShareCell("time-slicing", 7, 2).id == "time-slicing-t7-r2"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("onnx", "onnx:spin=false"),
        ("onnx:inter_op=2", "onnx:inter_op=2,spin=false"),
        ("onnx:spin=true", "onnx:spin=true"),
        ("synthetic:latency_us=5", "synthetic:latency_us=5"),
        ("driver", "driver"),
    ],
)
def test_pools_sleep_while_they_wait_unless_told_otherwise(given: str, expected: str) -> None:
    assert waiting_passively(given) == expected
