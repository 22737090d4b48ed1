"""Each recorded cause is named, only where it accounts for the difference, and for the slower side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gputax.environments.environment import Described
from gputax.measure.duet.causes import CAUSES, explain, explain_load
from gputax.measure.duet.explanations import NOTHING, explanations, time_difference_percent
from gputax.measure.duet.recorded import SideFacts, Spent, of_slot, of_telemetry, side_facts
from gputax.measure.session import SlotRun
from gputax.results.documents.comparison import Resolution
from tests.builders.documents import metric

# A model on two threads, 10 ms per run.
A = SideFacts(
    threads=2, cpus=(0, 1, 2, 3), nice=0, policy="other", cpu_weight=1.0, cpu_mhz=3000.0, cpu_nodes=(0,),
    remote_memory_share=0.02, huge_pages="always", huge_share=0.9, host_memory="pinned", kernel_us=120.0, calls_us=4.0,
    load_s=1.0, read_mb=0.0, wall_ms=10.0, cpu_ms=19.0, run_wait_ms=0.1, throttled_ms=0.0, steal_ms=0.0,
    major_faults=0.0,
)  # fmt: skip


def slower(wall_ms: float = 11.0, **changes: Any) -> SideFacts:
    return replace(A, wall_ms=wall_ms, **changes)


# By cause: what B recorded at 10 % more time, and a part of what is said.
RECORDED: dict[str, tuple[SideFacts, str]] = {
    "throttling": (slower(throttled_ms=0.9, quota_cpus=1.5, run_wait_ms=2.0), "the quota of 1.5 CPUs stopped it"),
    "threads": (slower(threads=1), "fewer threads: 1 instead of 2"),
    "cpuset": (slower(cpus=(0,)), "it may use 1 CPU instead of 4"),
    "weight": (slower(nice=10, run_wait_ms=1.5), "nice 10 instead of 0; it waited 0.7 ms per run for a CPU"),
    "steal": (slower(steal_ms=0.8), "the hypervisor withheld 0.8 ms per run"),
    "busy-cpus": (slower(run_wait_ms=2.0), "it waited 0.95 ms more per run"),
    "frequency": (slower(cpu_mhz=2750.0), "2750 MHz instead of 3000 MHz"),
    "pageable": (slower(host_memory="pageable"), "its host memory is pageable, the other side's is pinned"),
    "host-calls": (slower(10.012, calls_us=9.0), "launch and wait take 9 µs instead of 4 µs"),
    "storage": (slower(major_faults=3.0), "3 pages per run were read from storage"),
    "numa": (slower(remote_memory_share=0.7, cpu_ms=20.9), "70 % of its memory is on another node"),
    "huge-pages": (slower(huge_share=0.0, huge_pages="never", cpu_ms=20.9), "0 % of its memory is in huge pages"),
}  # fmt: skip


def percent_of(b: SideFacts) -> float:
    assert A.wall_ms
    assert b.wall_ms
    return 100.0 * (b.wall_ms / A.wall_ms - 1.0)


def test_every_cause_is_among_the_recorded_ones() -> None:
    assert set(RECORDED) == set(CAUSES)


@pytest.mark.parametrize("code", RECORDED)
def test_a_recorded_cause_is_named(code: str) -> None:
    b, text = RECORDED[code]
    found = explain(A, b, percent_of(b))
    assert found is not None
    assert found.code == code
    assert text in found.text


@pytest.mark.parametrize("code", RECORDED)
def test_the_cause_of_a_faster_b_is_one_of_a(code: str) -> None:
    b, _ = RECORDED[code]
    assert b.wall_ms
    assert A.wall_ms
    found = explain(b, A, 100.0 * (A.wall_ms / b.wall_ms - 1.0))
    assert found is not None
    assert found.code == code


@pytest.mark.parametrize("code", RECORDED)
def test_what_makes_the_faster_side_slower_explains_nothing(code: str) -> None:
    """B is 10 % slower although A has the handicap."""
    handicapped = replace(RECORDED[code][0], wall_ms=10.0)
    found = explain(handicapped, slower(), 10.0)
    assert found is None or found.code != code


def test_two_equal_sides_have_no_cause_whatever_the_noise_of_their_counters() -> None:
    draw = np.random.default_rng(7)
    for _ in range(300):
        noisy = replace(
            A,
            wall_ms=10.0 * (1 + draw.normal(0, 0.02)),
            cpu_ms=19.0 * (1 + draw.normal(0, 0.002)),
            run_wait_ms=abs(draw.normal(0.1, 0.05)),
            steal_ms=abs(draw.normal(0, 0.03)),
            cpu_mhz=3000.0 + draw.normal(0, 5),
            calls_us=4.0 + draw.normal(0, 0.1),
            huge_share=0.9 + draw.normal(0, 0.02),
        )
        assert explain(A, noisy, percent_of(noisy)) is None


SMALL: dict[str, SideFacts] = {
    "a tenth of it throttled": slower(throttled_ms=0.1),
    "another weight without waiting": slower(nice=10),
    "other CPUs, as many as it has threads": slower(cpus=(0, 1)),
    "a clock that is 1 % lower": slower(cpu_mhz=2970.0),
    "other memory, but no more CPU time": slower(remote_memory_share=0.7),
    "no huge pages, but no more CPU time": slower(huge_share=0.0),
    "slower calls beside slower kernels": slower(10.012, calls_us=9.0, kernel_us=140.0),
    "calls that take a twentieth of it": slower(calls_us=9.0),
    "pageable on both sides": slower(host_memory="pageable"),
    "nothing recorded": SideFacts(wall_ms=11.0),
}


@pytest.mark.parametrize("name", SMALL)
def test_what_does_not_account_for_the_difference_is_not_named(name: str) -> None:
    base = replace(A, host_memory="pageable") if name == "pageable on both sides" else A
    assert explain(base, SMALL[name], percent_of(SMALL[name])) is None


def test_loading_from_storage_is_told_beside_the_answer() -> None:
    cold = replace(A, load_s=4.0, read_mb=98.0)
    found = explain_load(A, cold)
    assert found is not None
    assert found.text == "loading takes 3 s longer: 98 MB came from storage, 0 MB on the other side (page cache)"
    assert explain_load(cold, A) is None
    assert explain_load(A, replace(A, load_s=4.0)) is None, "slow for another reason"
    assert explain_load(A, replace(A, read_mb=98.0)) is None, "as fast in spite of it"


class TestExplanations:
    SLOW = metric("a", "b", 10.0, workload="w", metric="latency_p50", unit="ms", ci95_percent=(8.0, 12.0))

    def test_a_difference_gets_its_cause_and_the_slower_side(self) -> None:
        (found,) = explanations(("a", "b"), {"w": (A, RECORDED["throttling"][0])}, [self.SLOW], None)
        assert (found.workload, found.slower, found.code) == ("w", "b", "throttling")

    def test_or_says_that_nothing_explains_it(self) -> None:
        (found,) = explanations(("a", "b"), {"w": (A, slower())}, [self.SLOW], None)
        assert (found.code, found.text) == (None, NOTHING)

    def test_equal_sides_get_none(self) -> None:
        equal = metric("a", "b", 0.3, workload="w", metric="latency_p50", unit="ms", ci95_percent=(-0.4, 1.0))
        assert explanations(("a", "b"), {"w": (A, slower(throttled_ms=5.0))}, [equal], None) == ()

    def test_nor_does_a_difference_within_the_noise(self) -> None:
        noise = Resolution(
            half_width_percent=11.0, ci95_percent=(-11.0, 11.0), pairs=9, seconds=9.0, contains_zero=True
        )
        assert time_difference_percent([self.SLOW], noise) is None

    def test_a_throughput_that_fell_by_half_is_twice_the_time(self) -> None:
        lost = metric("a", "b", 50.0, workload="w", ci95_percent=(48.0, 52.0))
        assert time_difference_percent([lost], None) == pytest.approx(100.0)

    def test_a_few_stalls_that_only_the_mean_shows_count_too(self) -> None:
        typical = metric("a", "b", 0.1, workload="w", metric="latency_p50", unit="ms", ci95_percent=(-0.4, 0.6))
        mean = metric("a", "b", 9.0, workload="w", metric="latency_mean", unit="ms", ci95_percent=(5.0, 13.0))
        assert time_difference_percent([typical, mean], None) == 9.0


def test_totals_of_slots_become_times_per_run() -> None:
    slot = SlotRun(np.array([4_000_000, 6_000_000]), 1_000_000, 8_000_000, 500_000, 0, 1)
    spent = of_slot(slot).plus(of_slot(slot))
    described = Described({"cpu_allowance": {"affinity": [0, 1], "quota_cpus": 1.5}})
    workers = [{"cpu_mhz": 2000.0, "nice": 0, "cpus": [0]}, {"cpu_mhz": 3000.0, "nice": 5, "cpus": [0, 1]}]
    found = side_facts({"threads": 2}, described, workers, [1.0, 3.0], spent)
    assert (found.wall_ms, found.cpu_ms, found.run_wait_ms, found.throttled_ms) == (5.0, 4.0, 0.5, 0.25)
    assert (found.major_faults, found.quota_cpus, found.cpus, found.nice) == (0.5, 1.5, (0, 1), 5)
    assert (found.cpu_mhz, found.load_s) == (2500.0, 2.0)


def test_what_one_slot_does_not_know_is_unknown() -> None:
    known, unknown = SlotRun(np.array([1]), 5, 5, 5, 5, 5), SlotRun(np.array([1]), None, None)
    spent = Spent().plus(of_slot(known)).plus(of_slot(unknown))
    assert (spent.run_wait_ns, spent.cpu_ns, spent.steal_ns, spent.major_faults) == (None, None, None, None)


def test_a_slot_of_loadgen_is_read_from_its_telemetry() -> None:
    series: dict[str, list[float | None]] = {
        "own_cpu_ms": [0.0, 900.0], "throttled_ms": [0.0, 300.0], "steal_ms": [0.0, None], "major_faults": [0.0, 4.0],
    }  # fmt: skip
    spent = of_telemetry(series, 100, 1.5)
    assert (spent.per_run_ms("wall_ns"), spent.per_run_ms("throttled_ns")) == (15.0, 3.0)
    assert spent.run_wait_ns is None
