"""What was tried is reported; what broke fails; what could not be tried is neither."""

from __future__ import annotations

from typing import Any

import pytest

from gputax.environments.environment import Evidence
from gputax.measure.neighbours.isolation import judged_crash, judged_foreign_memory, judged_quota, quota_of
from gputax.measure.neighbours.workers import CrashOutcome, life_ms, together
from gputax.plan.techniques import TECHNIQUES

MIB = 1 << 20
PROXY, MPS, SLICING, SHARED = (TECHNIQUES[name] for name in ("proxy", "mps", "time-slicing", "cpu-shared"))


def fill(taken: int, limit: int, refusal: str = "CUDA_ERROR_OUT_OF_MEMORY") -> dict[str, Any]:
    out = refusal.endswith("OUT_OF_MEMORY")
    return {"taken_bytes": taken * MIB, "limit_bytes": limit * MIB, "refusal": refusal, "out_of_memory": out}


@pytest.mark.parametrize(
    ("technique", "fills", "quota", "passed", "said"),
    [
        (PROXY, [fill(100, 100), fill(100, 100)], None, True, "the other then got 100 of its 100 MiB"),
        (PROXY, [fill(100, 100), fill(92, 100)], None, True, "CUDA_ERROR_OUT_OF_MEMORY"),
        (PROXY, [fill(200, 100), fill(100, 100)], None, False, "more than its quota"),
        (PROXY, [fill(150, 1024), fill(1024, 1024)], 100, False, "took 150 of its 100 MiB"),
        (PROXY, [fill(100, 100, "CUDA_ERROR_UNKNOWN"), fill(100, 100)], None, False, "refused by CUDA_ERROR_UNKNOWN"),
        (PROXY, [fill(100, 100, ""), fill(100, 100)], None, False, "refused by nothing"),
        (PROXY, [fill(700, 700), fill(300, 700)], 700, True, "add up to more than the device has"),
        (SLICING, [fill(1000, 1024), fill(0, 1024)], None, None, "no quota is set"),
        (MPS, [fill(1000, 1024), fill(0, 1024)], None, False, "nothing kept the first"),
    ],
)
def test_a_quota_of_device_memory(
    technique: Any, fills: list[dict[str, Any]], quota: int | None, passed: bool | None, said: str
) -> None:
    row = judged_quota(technique, "driver", fills, None if quota is None else quota * MIB)
    assert row.passed is passed, row.text
    assert said in row.text


@pytest.mark.parametrize(
    ("fills", "passed", "said"),
    [
        ([{"limit_bytes": None, "source": ""}] * 2, None, "no memory limit is set"),
        ([{"limit_bytes": 9 * MIB, "source": "/a"}] * 2, None, "shared by both tenants"),
        ([{"limit_bytes": 9000 * MIB, "source": "/a"}, {"source": "/b"}], None, "too large to fill"),
        ([{**fill(88, 100, "ended, OUT_OF_MEMORY"), "source": "/a"}, {"source": "/b"}], True, "took 88 of its 100 MiB"),
        ([{**fill(164, 100, ""), "source": "/a"}, {"source": "/b"}], False, "took 164 MiB, its limit is 100 MiB"),
    ],
)
def test_a_limit_of_host_memory(fills: list[dict[str, Any]], passed: bool | None, said: str) -> None:
    row = judged_quota(SHARED, "cpu", fills, None)
    assert row.passed is passed
    assert said in row.text


def test_the_evidence_may_name_the_quota() -> None:
    assert quota_of([Evidence({"memory_limit_bytes": 5}), Evidence({"memory_limit_bytes": 4})]) == 4
    assert quota_of([Evidence(), Evidence({"memory_limit_bytes": None})]) is None


def tried(found: bool) -> list[dict[str, Any]]:
    return [
        {"way": "memory freshly allocated", "outcome": "16 MiB searched", "found": False},
        {"way": "a copy", "outcome": "refused: CUDA_ERROR_INVALID_VALUE", "found": found},
    ]


def test_foreign_memory_fails_with_one_secret_read_and_tells_every_attempt() -> None:
    assert judged_foreign_memory(PROXY, tried(False), control=True).passed is True
    broken = judged_foreign_memory(PROXY, tried(True), control=True)
    assert broken.passed is False
    assert "a copy: the secret was read" in broken.text
    assert "one user" in judged_foreign_memory(SHARED, tried(True), control=True).text


def test_a_secret_that_even_its_owner_cannot_read_proves_nothing() -> None:
    assert judged_foreign_memory(PROXY, tried(False), control=False).passed is None
    assert judged_foreign_memory(PROXY, tried(True), control=False).passed is False


KILLED = ("was killed by signal 11",)


@pytest.mark.parametrize(
    ("outcome", "passed", "said"),
    [
        (None, None, "was not requested"),
        (CrashOutcome(()), None, "did not crash"),
        (CrashOutcome(KILLED, longest_beside_ms=3.0, runs_beside=9), True, "1 crash (the neighbour was killed by"),
        (CrashOutcome(KILLED * 2, victim_error="the worker died"), False, "did not continue: the worker died"),
        (CrashOutcome(KILLED, new_tenant_error="no device"), False, "no new tenant could start: no device"),
    ],
)
def test_a_crash(outcome: CrashOutcome | None, passed: bool | None, said: str) -> None:
    row = judged_crash(PROXY, outcome)
    assert row.passed is passed
    assert said in row.text


def test_one_bad_restart_is_enough() -> None:
    whole = together([CrashOutcome(KILLED, runs_beside=3), CrashOutcome(KILLED, victim_error="gone", runs_beside=1)])
    assert not whole.contained
    assert (len(whole.ends), whole.runs_beside, whole.victim_error) == (2, 4, "gone")


@pytest.mark.parametrize(("window_s", "life"), [(0.01, 50), (0.3, 100), (10.0, 1000)])
def test_a_neighbour_crashes_inside_of_every_slot(window_s: float, life: int) -> None:
    assert life_ms(window_s) == life
