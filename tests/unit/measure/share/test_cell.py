"""One cell judged from the samples of its tenants: hand-made columns, no process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputax.environments.bare import Bare
from gputax.environments.environment import Described, Evidence
from gputax.errors import CellError
from gputax.measure.session import Observation
from gputax.measure.share.cell import (
    GFLOP_PER_CORE_S,
    START_CORE_S,
    SharedMeasurement,
    expected_seconds,
    judge,
    load_seconds,
)
from gputax.measure.share.group import Proof, Released
from gputax.plan.cells import Load, Setup
from gputax.plan.notices import Notice
from gputax.plan.techniques import Entitlement, ShareCell, SharePlan
from gputax.plan.workloads import workload_facts
from gputax.sharing.place import Switched, Tenant
from tests.builders.shared_cells import FACTS

MS = 1_000_000
SETUP = Setup("yolos-small")
ACTIVE = Evidence({"active": True})
LOAD = Load("saturate")


def observed(
    first_ms: int, run_ms: int, runs: int, *notices: Notice, load: Load = LOAD, telemetry: dict[str, Any] | None = None
) -> Observation:
    start = (first_ms + run_ms * np.arange(runs, dtype=np.int64)) * MS
    columns = {"start_ns": start, "end_ns": start + run_ms * MS, "samples": np.ones(runs, np.int64)}
    return Observation(load, columns, {}, notices, telemetry or {}, 1.0)


def judged(
    *observations: Observation, technique: str = "cpu-shared", evidence: Evidence = ACTIVE, cores: int = 2,
    warmup_s: float = 0.1, threads: int = 1,
) -> SharedMeasurement:  # fmt: skip
    count = len(observations)
    plan = SharePlan("bare", (technique,), (count,), SETUP, warmup_s=warmup_s, window_s=1.0)
    described = Described({"pid": 1, "cpu_allowance": {"affinity": list(range(cores))}})
    return judge(
        plan,
        ShareCell(technique, count, 1),
        [Tenant(Bare(), SETUP, Entitlement("all", 1.0))] * count,
        Released(0, observations, unix_ns=5_000_000_000),
        Proof((ACTIVE,) * count, (described,) * count),
        evidence,
        ({**FACTS, "threads": threads},) * count,
        Switched(0.0),
    )


def codes(measured: SharedMeasurement) -> list[str]:
    return [notice.code for notice in measured.notices]


def test_every_run_is_kept_and_those_of_the_window_are_marked() -> None:
    measured = judged(observed(0, 10, 100), observed(50, 20, 60), observed(0, 10, 110))
    columns = measured.columns
    assert len(columns["tenant"]) == 270
    assert [int((columns["kept"][columns["tenant"] == number]).sum()) for number in (1, 2, 3)] == [85, 42, 85]
    assert [one.runs for one in measured.each] == [85, 42, 85]
    assert measured.together.runs == 212
    assert measured.valid
    assert codes(measured) == ["little-overlap", "uneven-tenants"]
    assert measured.ended_s == pytest.approx(6.0), "the window's end as Unix time"


def test_who_got_more_shows_in_jain() -> None:
    even, uneven = judged(*[observed(0, 10, 100)] * 3), judged(observed(0, 10, 100), *[observed(0, 20, 50)] * 2)
    assert even.jain == pytest.approx(1.0)
    assert uneven.jain == pytest.approx((100 + 50 + 50) ** 2 / (3 * (100**2 + 2 * 50**2)))


def test_a_starved_tenant_is_named_with_the_best_served_one() -> None:
    uneven = judged(observed(0, 40, 25), observed(0, 10, 100), observed(0, 20, 50), cores=1)
    (notice,) = [each for each in uneven.notices if each.code == "uneven-tenants"]
    assert notice.text.endswith("tenant 2 got 100/s, tenant 1 25/s, a factor of 4")
    assert notice.value == pytest.approx(4.0)
    assert "uneven-tenants" not in codes(judged(*[observed(0, 10, 100)] * 3))


def test_a_window_that_was_stretched_says_so_and_why() -> None:
    stretched = Load("saturate", min_duration_s=50.1, expected_latency_ns=5_000 * MS)
    measured = judged(*[observed(0, 5000, 10, load=stretched)] * 3)
    assert measured.notices == (
        Notice("window-stretched", "a run takes 5 s: measuring for 50 s instead of 1 s, so that 10 runs fit", 50.1),
    )
    asked = Load("saturate", min_duration_s=1.1, expected_latency_ns=5 * MS)
    assert codes(judged(*[observed(0, 10, 100, load=asked)] * 3)) == []


def telemetry_of(busy_ms: float, own_cpu_ms: float) -> dict[str, Any]:
    return {"time_ns": [0, 1000 * MS], "busy_ms": [0, busy_ms], "own_cpu_ms": [0, own_cpu_ms]}


def test_load_that_is_no_tenants_is_told_from_theirs() -> None:
    beside = [observed(0, 10, 100, telemetry=telemetry_of(2000, own)) for own in (600, 500, 400)]
    (notice,) = judged(*beside).notices
    assert (notice.code, notice.value) == ("foreign-load", pytest.approx(50.0))
    alone = [observed(0, 10, 100, telemetry=telemetry_of(2000, own)) for own in (700, 700, 560)]
    assert codes(judged(*alone)) == [], "4 % of a core are the coordinator's"
    assert codes(judged(*beside, technique="proxy")) == [], "a proxy is neither tenant nor stranger"


def test_without_evidence_it_is_invalid_and_says_why() -> None:
    measured = judged(*[observed(0, 10, 100)] * 3, evidence=Evidence.of("proxy", ["two proxies"]))
    assert not measured.valid
    assert measured.notices[0] == Notice("no-evidence", "INVALID: cpu-shared was not active: two proxies")


def test_a_warning_of_the_place_travels_with_the_number() -> None:
    measured = judged(*[observed(0, 10, 100)] * 3, evidence=Evidence.of("mps", [], warning="says nothing of a GPU"))
    assert measured.valid
    assert measured.notices == (Notice("technique", "says nothing of a GPU"),)


def test_tenants_are_no_busy_neighbours_of_each_other_but_strangers_are() -> None:
    busy, steal = Notice("busy-neighbours", "others", 90.0), Notice("cpu-steal", "little", 2.0)
    more = Notice("cpu-steal", "much", 9.0)
    three = judged(observed(0, 10, 100, busy, steal), observed(0, 10, 100, more), observed(0, 10, 100))
    assert three.notices == (more,), "the worst of its kind, once"
    assert codes(judged(observed(0, 10, 100, busy), cores=1, threads=2)) == ["busy-neighbours"]
    assert codes(judged(observed(0, 10, 100, busy), technique="proxy")) == [], "the proxy spins for its tenant"


def test_a_quota_that_throttles_does_what_it_should() -> None:
    throttled = Notice("cpu-throttled", "stopped", 50.0)
    assert codes(judged(*[observed(0, 10, 100, throttled)] * 3, technique="cpu-quota")) == []
    assert codes(judged(*[observed(0, 10, 100, throttled)] * 3)) == ["cpu-throttled"]


def test_cores_enough_for_all_are_not_shared() -> None:
    assert codes(judged(*[observed(0, 10, 100)] * 3, cores=8)) == ["cores-not-shared"]
    assert codes(judged(*[observed(0, 10, 100)] * 3, cores=8, threads=4)) == []


def test_a_window_too_short_for_a_run_is_a_failed_cell_with_the_way_out() -> None:
    with pytest.raises(CellError, match="a run takes") as raised:
        judged(observed(0, 1000, 2), observed(0, 100, 15), warmup_s=1.2)
    assert "--window" in raised.value.next_step


def test_load_of_others_beyond_the_limit_disturbs_the_cell_and_tenants_do_not() -> None:
    def series(busy_ms: float, own_ms: float, steal_ms: float = 0.0) -> dict[str, Any]:
        return {
            "time_ns": [0, 10_000 * MS], "allowed_cpus": [2, 2], "affinity_changed": [0, 0], "busy_ms": [0, busy_ms],
            "own_cpu_ms": [0, own_ms], "others_ms": [0, busy_ms - own_ms], "steal_ms": [0, steal_ms],
        }  # fmt: skip

    def disturbed(*telemetries: dict[str, Any], technique: str = "cpu-shared") -> tuple[str, ...]:
        return judged(*(observed(0, 10, 100, telemetry=each) for each in telemetries), technique=technique).disturbed

    assert disturbed(series(16_000, 8_000), series(16_000, 8_000)) == ()
    assert disturbed(series(18_000, 8_000), series(18_000, 8_000)) == ()
    assert disturbed(series(19_000, 8_000), series(19_000, 8_000)) == (
        "processes other than the tenants used 30 % of one core on the tenants' CPUs (limit 25 %)",
    )
    assert disturbed(series(13_000, 10_000)) == (
        "other processes used 30 % of one core on this worker's CPUs (limit 25 %)",
    )
    assert disturbed(series(19_000, 10_000), technique="proxy") == (), "the proxy itself"
    assert disturbed(series(8_000, 8_000, 900.0), series(8_000, 8_000, 1200.0)) == (
        "the hypervisor withheld 6.0 % of this worker's CPU time (steal, limit 5 %)",
    )


DEFAULTS = SharePlan("bare", ("cpu-shared", "cpu-quota"), (1, 3, 5, 7), Setup("yolos-small"))


class VirtualCores:
    """Cores shared by tenants in virtual time, step by step: who is busy gets an equal part, up to its own limit."""

    STEP_S = 0.01

    def __init__(self, cores: float, most_of_each: float) -> None:
        self.now_s, self._cores, self._most = 0.0, cores, most_of_each

    def all_do(self, tenants: int, core_s: float, more: Callable[[float], bool] = lambda now_s: False) -> float:
        """Let each tenant do this work, and again as long as `more` says so; return when the last one has ended."""
        left = [core_s] * tenants
        while any(work > 0 for work in left):
            each = min(self._most, self._cores / sum(work > 0 for work in left))
            self.now_s += self.STEP_S
            for at, work in enumerate(left):
                if work > 0:
                    left[at] = work - each * self.STEP_S
                    if left[at] <= 0 and more(self.now_s):
                        left[at] += core_s
        return self.now_s


def played_s(plan: SharePlan, cell: ShareCell, cores: int) -> float:
    """Return how long the cell takes on virtual cores: the phases of `measure_shared_cell`, one after the other."""
    threads = max(1, cores // plan.parts)
    machine = VirtualCores(cores, min(threads, cores / plan.parts) if cell.technique == "cpu-quota" else threads)
    run_core_s = workload_facts(plan.setup.workload).gflop / GFLOP_PER_CORE_S
    started_s = machine.all_do(cell.tenants, START_CORE_S)
    first_s = machine.all_do(cell.tenants, run_core_s) - started_s
    ends_s = machine.now_s + load_seconds(plan, cell.tenants, round(first_s * 1e9))
    return machine.all_do(cell.tenants, run_core_s, lambda now_s: now_s < ends_s)


@pytest.mark.parametrize("cores", [2, 8])
@pytest.mark.parametrize("workload", ["yolos-small", "resnet50"])
def test_the_estimate_is_what_a_plan_takes_in_virtual_time(workload: str, cores: int) -> None:
    plan = SharePlan("bare", DEFAULTS.techniques, DEFAULTS.tenants, Setup(workload), repeats=1)
    played = sum(played_s(plan, cell, cores) for cell in plan.cells())
    assert sum(expected_seconds(plan, cell, cores) for cell in plan.cells()) == pytest.approx(played, rel=0.1)


def test_the_documentation_tells_the_estimate_of_the_defaults() -> None:
    from gputax.cli.progress import expected_s
    from gputax.measure.share.documents import shown_cell

    minutes = sum(expected_s(shown_cell(DEFAULTS, cell, 2)) for cell in DEFAULTS.cells()) / 60
    page = (Path(__file__).parents[4] / "docs/sharing.md").read_text()
    assert f"about {round(minutes, -1):.0f} minutes on two idle cores" in " ".join(page.split())


def test_on_a_gpu_the_estimate_is_the_window_alone() -> None:
    plan = SharePlan("k8s", ("mps",), (1, 7), Setup("yolos-small"))
    assert expected_seconds(plan, ShareCell("mps", 7, 1), 2) == plan.warmup_s + plan.window_s
