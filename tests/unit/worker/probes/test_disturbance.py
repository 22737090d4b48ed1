"""Which series earn which notice, on both sides of every limit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gputax.plan.notices import Notice
from gputax.worker.probes.disturbance import (
    CELL_LIMITS,
    PAIR_LIMITS,
    Limits,
    beyond,
    disturbances,
    in_most,
    others_percent_of_core,
    reasons,
    span_ms,
    steal_percent,
)

S = 1_000_000_000
MS = 1_000_000
# Ten seconds on two CPUs, undisturbed.
CALM: dict[str, list[Any]] = {
    "time_ns": [3 * S, 8 * S, 13 * S],
    "wall_minus_monotonic_ns": [17 * S, 17 * S, 17 * S],
    "allowed_cpus": [2, 2, 2],
    "affinity_changed": [0, 0, 0],
    "steal_ms": [0.0, 0.0, 0.0],
    "others_ms": [0.0, 0.0, 0.0],
    "throttled_ms": [0.0, 0.0, 0.0],
    "throttled_periods": [0, 0, 0],
}
CALM_GPU: dict[str, list[Any]] = {
    "sm_clock_mhz": [210, 1400, 1400],
    "gpu_utilisation_percent": [0, 95, 95],
    "gpu_throttle_reasons": [1, 0, 0],
    "gpu_processes": [1, 1, 1],
    "foreign_gpu_processes": [0, 0, 0],
    "foreign_gpu_pid": [None, None, None],
}

# (what is changed, code and value of the only notice, or None)
CASES: list[tuple[dict[str, list[Any]], tuple[str, float] | None]] = [
    ({}, None),
    (CALM_GPU, None),
    # 1 % of 2 x 10 s is 200 ms
    ({"steal_ms": [0, 0, 200.0]}, None),
    ({"steal_ms": [0, 0, 220.0]}, ("cpu-steal", 1.1)),
    # 10 % of one core is 1000 ms
    ({"others_ms": [0, 0, 1000.0]}, None),
    ({"others_ms": [0, 0, 1050.0]}, ("busy-neighbours", 10.5)),
    ({"throttled_ms": [0, 0.2, 0.5], "throttled_periods": [0, 1, 3]}, ("cpu-throttled", 0.5)),
    # 5 s may slew by 5 ms on top of the 5 ms
    ({"wall_minus_monotonic_ns": [0, 10 * MS, 20 * MS]}, None),
    ({"wall_minus_monotonic_ns": [0, 0, 11 * MS]}, ("clock-jump", 11.0)),
    ({"wall_minus_monotonic_ns": [0, 11 * MS, -3000 * MS]}, ("clock-jump", -3011.0)),
    ({"affinity_changed": [0, 1, 0]}, ("affinity-changed", 0.0)),
    ({"affinity_changed": [0, 1, 1], "allowed_cpus": [2, 1, 1]}, ("affinity-changed", -1.0)),
    # power cap in one of four samples; idle, user clocks and display clocks are no disturbance
    ({"gpu_throttle_reasons": [1, 0x4, 0x2, 0x100]}, ("gpu-throttled", 25.0)),
    ({"gpu_throttle_reasons": [1, 0x2, 0x102]}, None),
    ({**CALM_GPU, "sm_clock_mhz": [210, 1400, 1330]}, None),
    ({**CALM_GPU, "sm_clock_mhz": [210, 1400, 1323]}, ("gpu-clock-drop", 5.5)),
    ({**CALM_GPU, "sm_clock_mhz": [210, 1400, 1260]}, ("gpu-clock-drop", 10.0)),
    (
        {**CALM_GPU, "sm_clock_mhz": [210, 1400, 1260], "gpu_utilisation_percent": [0, 95, 50]},
        ("gpu-clock-drop", 10.0),
    ),
    ({**CALM_GPU, "sm_clock_mhz": [210, 1400, 1260], "gpu_utilisation_percent": [0, 95, 49]}, None),
    # the ramp up before the peak, and an idle end, are no drop
    ({**CALM_GPU, "sm_clock_mhz": [210, 1000, 1400]}, None),
    (
        {**CALM_GPU, "sm_clock_mhz": [1400, 1400, 210], "gpu_utilisation_percent": [95, 95, 3]},
        None,
    ),
    # a MIG device tells no utilisation: all samples count
    (
        {**CALM_GPU, "sm_clock_mhz": [1400, 700, 700], "gpu_utilisation_percent": [None] * 3},
        ("gpu-clock-drop", 50.0),
    ),
    (
        {**CALM_GPU, "foreign_gpu_processes": [0, 2, 1], "foreign_gpu_pid": [None, 41, 41]},
        ("gpu-shared", 2.0),
    ),
    (
        {**CALM_GPU, "foreign_gpu_processes": [0, 1, 0], "foreign_gpu_pid": [None, 41, None]},
        ("gpu-shared", 1.0),
    ),
    ({**CALM_GPU, "foreign_gpu_processes": [None] * 3, "gpu_processes": [1, 1, 1]}, None),
    ({**CALM_GPU, "foreign_gpu_processes": [None] * 3, "gpu_processes": [1, 2, 1]}, ("gpu-shared", 2.0)),
    # nothing could be read
    ({name: [None] * 3 for name in CALM if name != "time_ns"}, None),
]


@pytest.mark.parametrize(("changes", "expected"), CASES)
def test_a_disturbance_is_noticed_from_its_limit_on(
    changes: dict[str, list[Any]], expected: tuple[str, float] | None
) -> None:
    notices = disturbances({**CALM, **changes})
    assert [(notice.code, notice.value) for notice in notices] == (
        [(expected[0], pytest.approx(expected[1]))] if expected else []
    )


def test_rounding_of_the_ticks_in_a_short_run_is_no_disturbance() -> None:
    short = {**CALM, "time_ns": [0, 25 * MS, 50 * MS], "steal_ms": [0, 0, 20.0], "others_ms": [0, 0, 20.0]}
    assert disturbances(short) == []
    busy = {**short, "others_ms": [0, 0, 30.0], "steal_ms": [0, 0, 30.0]}
    assert [notice.code for notice in disturbances(busy)] == ["cpu-steal", "busy-neighbours"]


def test_limits_can_be_set() -> None:
    assert disturbances({**CALM, "steal_ms": [0, 0, 300.0]}, limits=Limits(steal_percent=2.0)) == []


def test_each_kind_of_gpu_slowdown_has_its_own_notice() -> None:
    notices = disturbances({**CALM, "gpu_throttle_reasons": [0x44, 0x40]})
    texts = " ".join(notice.text for notice in notices)
    assert [notice.value for notice in notices] == [50, 100]
    assert "software power cap" in texts
    assert "hardware thermal slowdown" in texts


@pytest.mark.parametrize(
    ("governors", "noticed"), [(None, False), ((), False), (("performance",), False), (("powersave",), True)]
)
def test_a_governor_that_varies_the_clock_is_told(governors: tuple[str, ...] | None, noticed: bool) -> None:
    notices = disturbances(CALM, governors=governors)
    assert [notice.code for notice in notices] == ["cpu-governor"] * noticed
    assert all("powersave" in notice.text for notice in notices)


TEXTS: dict[str, tuple[dict[str, list[Any]], str]] = {
    "cpu-steal": (
        {"steal_ms": [0, 0, 220.0]},
        "The hypervisor withheld 1.1 % of this worker's CPU time (steal, limit 1 %): latencies contain waiting"
        " that no layer under test caused.",
    ),
    "busy-neighbours": (
        {"others_ms": [0, 0, 3470.0]},
        "Other processes used 35 % of one core on this worker's CPUs (limit 10 %): they take cache and CPU time"
        " from the measurement.",
    ),
    "cpu-throttled": (
        {"throttled_ms": [0, 10.0, 250.0], "throttled_periods": [0, 1, 5]},
        "The cgroup's CPU quota stopped this worker for 250 ms in 5 periods: the tail latencies are those of the"
        " quota. Use no more threads than the quota has CPUs, or raise it.",
    ),
    "clock-jump": (
        {"wall_minus_monotonic_ns": [0, 60 * MS, 60 * MS]},
        "The wall clock jumped by +60 ms during the run: LoadGen takes its latencies from it and is wrong by that"
        " amount; gputax's own timestamps are monotonic and are not affected.",
    ),
    "gpu-clock-drop": (
        {"sm_clock_mhz": [1400, 1400, 1260]},
        "The GPU's clock fell by 10 % during the run, from 1400 to 1260 MHz (limit 5 %): early and late samples"
        " are not comparable.",
    ),
    "gpu-shared": (
        {"foreign_gpu_processes": [1, 2, 2], "foreign_gpu_pid": [41, 42, 42]},
        "2 other process(es) had the GPU open during the run (pid 41): their work and memory are part of the"
        " measurement.",
    ),
    "affinity-changed": (
        {"affinity_changed": [0, 1, 1], "allowed_cpus": [8, 6, 4]},
        "The CPUs that this worker may use changed during the run (from 8 to 4 CPUs): early and late samples had"
        " different processors.",
    ),
}


@pytest.mark.parametrize("code", TEXTS)
def test_each_text_gives_its_number_and_why_it_matters(code: str) -> None:
    changes, text = TEXTS[code]
    assert [(notice.code, notice.text) for notice in disturbances({**CALM, **changes})] == [(code, text)]


def test_the_largest_of_several_jumps_is_told_with_its_sign() -> None:
    series = {**CALM, "wall_minus_monotonic_ns": [0, 60 * MS, -40 * MS]}
    (notice,) = disturbances(series)
    assert notice.value == -100
    assert "-100 ms" in notice.text


def test_an_empty_series_is_calm() -> None:
    assert disturbances({}) == []
    assert (span_ms({}), steal_percent({}), others_percent_of_core({})) == (0.0, None, None)


def test_a_notice_survives_the_pipe() -> None:
    notice = Notice("cpu-steal", "text", 1.5)
    assert Notice.from_dict({**notice.to_dict(), "added_later": 1}) == notice
    assert Notice.from_dict(Notice("x", "y").to_dict()).value is None


# (what is changed, whether a cell alone is disturbed, whether a pair is)
DISTURBED: list[tuple[dict[str, list[Any]], bool, bool]] = [
    (CALM_GPU, False, False),
    # of 2 x 10 s: 3 % of steal is what a virtual machine has, 5 % is 1000 ms, 20 % is 4000 ms
    ({"steal_ms": [0, 0, 600.0]}, False, False),
    ({"steal_ms": [0, 0, 1000.0]}, False, False),
    ({"steal_ms": [0, 0, 1020.0]}, True, False),
    ({"steal_ms": [0, 0, 4020.0]}, True, True),
    # on two CPUs a quarter of a core is 2500 ms; 60 % of both CPUs are 12 s
    ({"others_ms": [0, 0, 2500.0]}, False, False),
    ({"others_ms": [0, 0, 2600.0]}, True, False),
    ({"others_ms": [0, 0, 10_100.0]}, True, False),
    ({"others_ms": [0, 0, 12_100.0]}, True, True),
    # on 64 CPUs 5 % are 320 % of a core
    ({"others_ms": [0, 0, 31_000.0], "allowed_cpus": [64] * 3}, False, False),
    ({"others_ms": [0, 0, 33_000.0], "allowed_cpus": [64] * 3}, True, False),
    ({"throttled_ms": [0, 0, 490.0]}, False, False),
    ({"throttled_ms": [0, 0, 510.0]}, True, False),
    ({"affinity_changed": [0, 1, 0]}, True, True),
    ({**CALM_GPU, "gpu_throttle_reasons": [4, 0, 0]}, True, False),
    ({**CALM_GPU, "sm_clock_mhz": [210, 1400, 1260]}, False, False),
    ({**CALM_GPU, "sm_clock_mhz": [210, 1400, 1190]}, True, False),
    # these have consequences of their own
    ({"wall_minus_monotonic_ns": [0, 0, 11 * MS]}, False, False),
    ({**CALM_GPU, "foreign_gpu_processes": [0, 2, 1], "foreign_gpu_pid": [None, 41, 41]}, False, False),
]


@pytest.mark.parametrize(("changed", "alone", "paired"), DISTURBED)
def test_a_cell_is_disturbed_beyond_the_stated_limits(changed: dict[str, list[Any]], alone: bool, paired: bool) -> None:
    assert bool(beyond({**CALM, **changed}, CELL_LIMITS)) is alone
    assert bool(beyond({**CALM, **changed}, PAIR_LIMITS)) is paired


def test_a_reason_names_size_and_limit_and_what_is_expected_is_none() -> None:
    series = {**CALM, "others_ms": [0, 0, 10_400.0], "steal_ms": [0, 0, 1400.0]}
    assert reasons(beyond(series, CELL_LIMITS)) == (
        "the hypervisor withheld 7.0 % of this worker's CPU time (steal, limit 5 %)",
        "other processes used 104 % of one core on this worker's CPUs (limit 25 %)",
    )
    assert [each.code for each in beyond(series, CELL_LIMITS, {"busy-neighbours"})] == ["cpu-steal"]


def test_of_several_spans_more_than_half_must_be_disturbed() -> None:
    calm: list[Notice] = []
    busy, busier = [Notice("busy-neighbours", "b", 130.0)], [Notice("busy-neighbours", "c", 190.0)]
    assert in_most([calm, busy]) == []
    assert in_most([calm, busy, busier]) == busier
    assert in_most([]) == []


def test_the_page_on_the_method_states_these_limits() -> None:
    page = (Path(__file__).parents[4] / "docs/method.md").read_text()
    table = page[page.index("| disturbance |") :].partition("\n\n")[0]
    stated = [re.findall(r"(\d+) %", row) for row in table.splitlines()[2:]]
    names = (
        "steal_percent", "others_percent_of_core", "others_percent_of_cpus", "throttled_percent",
        "gpu_throttled_percent", "clock_drop_percent",
    )  # fmt: skip
    limits = (Limits(), CELL_LIMITS, PAIR_LIMITS)
    expected = [[f"{getattr(each, name):g}" for each in limits] for name in names]
    expected[2] = expected[2][1:]  # a warning does not depend on the number of CPUs
    assert stated == expected
