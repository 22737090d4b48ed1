"""Hours from events times list prices, against answers worked out by hand."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from gputax.deploy.cost import check_place, expected, load_prices, spent
from gputax.deploy.plan import BenchmarkChoices, Plan
from gputax.deploy.providers.gke import GkeChoices, gke_plan
from gputax.errors import UsageError

PRICES = load_prices()
CONTROL, SYSTEM, GPU = 0.10, 0.06701 + 50 * 0.10 / 730, 0.19 + 0.35 + 100 * 0.10 / 730


def plan(**changes: object) -> Plan:
    choices = GkeChoices(project="my-project-1", **changes)  # type: ignore[arg-type]
    return gke_plan(choices, BenchmarkChoices(image="i"), "r1", "results/baseline", PRICES, build=True)


def at(minutes: float, event: str, step: str = "", **details: object) -> dict[str, object]:
    time = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(minutes=minutes)
    return {"at": time.isoformat(), "event": event, **({"step": step} if step else {}), **details}


def cost_of(events: list[dict[str, object]], minutes: float) -> tuple[float, float]:
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(minutes=minutes)
    cost = spent(plan(), events, now)
    return cost.usd, cost.usd_per_hour_now


def test_rates_are_the_sums_of_their_parts() -> None:
    assert [rate.usd_per_hour for rate in plan().rates] == pytest.approx([CONTROL, SYSTEM, GPU])
    spot = plan(spot=True).rates[2]
    assert spot.usd_per_hour == pytest.approx((0.19 + 0.35) * 0.4 + 100 * 0.10 / 730), "a disk has no Spot price"
    l4 = plan(machine="g2-standard-4", accelerator="nvidia-l4").rates[2]
    assert l4.usd_per_hour == pytest.approx(0.7068 + 100 * 0.10 / 730), "this machine's price includes its GPU"
    two = plan(accelerator_count=2).rates[2]
    assert two.usd_per_hour == pytest.approx(0.19 + 2 * 0.35 + 100 * 0.10 / 730)


def test_nothing_begun_costs_nothing() -> None:
    assert cost_of([at(0, "deploy-begun"), at(1, "step-begun", "build")], 60) == (0, 0)


def test_a_cluster_costs_from_the_moment_its_creation_began() -> None:
    assert cost_of([at(0, "step-begun", "cluster")], 30) == pytest.approx(((CONTROL + SYSTEM) / 2, CONTROL + SYSTEM))


def test_a_gpu_node_costs_until_ten_minutes_after_its_job() -> None:
    events = [at(0, "step-begun", "cluster"), at(6, "step-begun", "job"), at(26, "job-ended", phase="complete")]
    soon, now_rate = cost_of(events, 30)
    assert soon == pytest.approx((CONTROL + SYSTEM) * 0.5 + GPU * 24 / 60)
    assert now_rate == pytest.approx(CONTROL + SYSTEM + GPU)
    late, late_rate = cost_of(events, 600)
    assert late == pytest.approx((CONTROL + SYSTEM) * 10 + GPU * 30 / 60)
    assert late_rate == pytest.approx(CONTROL + SYSTEM)


def test_two_jobs_close_together_count_the_node_once() -> None:
    events = [at(0, "step-begun", "job"), at(20, "job-ended"), at(25, "step-begun", "job"), at(35, "job-ended")]
    assert cost_of(events, 600)[0] == pytest.approx(GPU * 45 / 60)
    apart = [at(0, "step-begun", "job"), at(20, "job-ended"), at(60, "step-begun", "job"), at(70, "job-ended")]
    assert cost_of(apart, 600)[0] == pytest.approx(GPU * (30 + 20) / 60)


def test_what_was_there_before_or_came_to_nothing_is_not_counted() -> None:
    assert cost_of([at(0, "step-done", "cluster", how="found")], 60)[0] == 0
    failed = [at(0, "step-begun", "cluster"), at(3, "step-failed", "cluster", left_behind=False)]
    assert cost_of(failed, 60) == pytest.approx(((CONTROL + SYSTEM) * 3 / 60, 0))
    left = [at(0, "step-begun", "cluster"), at(3, "step-failed", "cluster", left_behind=True)]
    assert cost_of(left, 60)[0] == pytest.approx(CONTROL + SYSTEM)


def test_the_end_ends_it() -> None:
    events = [at(0, "step-begun", "cluster"), at(6, "step-begun", "job")]
    assert cost_of([*events, at(30, "undone", "cluster")], 600) == pytest.approx(
        ((CONTROL + SYSTEM) * 0.5 + GPU * 24 / 60, 0)
    ), "the GPU node goes with its cluster"
    assert cost_of([*events, at(30, "scaled-to-zero")], 60) == pytest.approx(
        (CONTROL + SYSTEM + GPU * 24 / 60, CONTROL + SYSTEM)
    )
    assert cost_of([*events, at(30, "destroyed")], 600)[1] == 0


def test_the_plans_own_expectation() -> None:
    # apis 30, repository 15, build 240, push 120 s come before the cluster; then 360 + 90 + 5 + 2 s before the Job.
    total_s = 30 + 15 + 240 + 120 + 360 + 90 + 5 + 2 + 2 + 900 + 5
    assert plan().expected_s() == total_s
    by_hand = (CONTROL + SYSTEM) * (total_s - 405) / 3600 + GPU * (total_s - 405 - 457) / 3600
    assert expected(plan()).usd == pytest.approx(by_hand)
    assert expected(plan()).usd == pytest.approx(0.206, abs=0.001)


@pytest.mark.parametrize(
    ("zone", "machine", "accelerator", "count", "hint"),
    [
        ("us-central1-a", "a2-highgpu-1g", "nvidia-tesla-t4", 1, "--accelerator nvidia-tesla-a100"),
        ("us-central1-a", "e2-standard-2", "nvidia-tesla-t4", 1, "--machine n1-standard-4"),
        ("us-central1-a", "g2-standard-4", "nvidia-l4", 2, ""),
        ("europe-west4-z", "n1-standard-4", "nvidia-tesla-t4", 1, "europe-west4-a"),
    ],
)
def test_impossible_places_are_refused(zone: str, machine: str, accelerator: str, count: int, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        check_place(PRICES, zone, machine, accelerator, count)
    assert hint in error.value.next_step


def test_every_zone_and_machine_of_the_table_is_consistent() -> None:
    for offered in PRICES.zones.values():
        assert set(offered) <= set(PRICES.accelerators)
    for machine in PRICES.machines.values():
        assert not machine.accelerator or machine.accelerator in PRICES.accelerators


def test_a_table_of_the_users(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text("as_of = ")
    with pytest.raises(UsageError, match="malformed price table"):
        load_prices(path)
    path.write_text("as_of = '2027-01-01'")
    with pytest.raises(UsageError, match="sources is missing"):
        load_prices(path)
    with pytest.raises(UsageError, match="cannot read the price table"):
        load_prices(tmp_path / "none.toml")
