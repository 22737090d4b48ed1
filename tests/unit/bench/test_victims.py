"""The bench of victims: a ratio for each kind of attacker from pairs, and the worst kind decides."""

from __future__ import annotations

from bench.attackers import ATTACKERS
from bench.victims import KEY, P99_FLOOR, Block, victim_figures


def pairs(*ratios: float, operations: int = P99_FLOOR) -> list[tuple[Block, Block]]:
    return [(Block(5000, 200.0), Block(operations, 200.0 * ratio)) for ratio in ratios]


def test_the_worst_kind_is_the_figure_and_each_kind_has_its_own() -> None:
    found = victim_figures({"silent": pairs(1.0, 1.1, 0.9), "launches": pairs(4.0, 3.0, 9.0)})
    assert found[KEY] == found[f"{KEY}_launches"] == 4.0
    assert found[f"{KEY}_silent"] == 1.0
    assert found[f"{KEY}_launches_ci95"] == [3.0, 9.0]
    assert found["proxy_victim_p99_us_alone"] == 200.0
    assert found["proxy_victim_p99_us_launches"] == 800.0


def test_without_enough_operations_for_a_p99_there_is_no_ratio() -> None:
    found = victim_figures({"silent": pairs(1.0, 1.0), "endless": pairs(2.0, 2.0, operations=P99_FLOOR - 1)})
    assert found[f"{KEY}_endless"] is None
    assert found[f"{KEY}_endless_ci95"] is None
    assert found[f"{KEY}_silent"] == 1.0
    assert found[KEY] is None, "a kind that is not known may be the worst"
    assert found["proxy_victim_operations_endless"] == P99_FLOOR - 1


def test_every_kind_of_attack_is_there() -> None:
    expected = {"launches", "endless", "modules", "memory", "connections", "garbage", "silent", "killed"}
    assert set(ATTACKERS) == expected
