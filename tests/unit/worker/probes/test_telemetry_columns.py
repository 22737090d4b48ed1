"""Raw samples made by hand, with answers worked out by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gputax.worker.probes.nvidia import GpuSample
from gputax.worker.probes.telemetry import RawSample, to_series

MS = 1_000_000
# user nice system idle iowait irq softirq steal guest guest_nice
CPU_AT_0 = b"""cpu  100 0 50 1000 10 0 0 5 0 0
cpu0 40 0 20 500 5 0 0 5 0 0
cpu1 60 0 30 500 5 0 0 0 0 0
intr 1 2 3
"""
# In one second cpu0 had 50 user (10 of them as guest), 10 nice, 20 system, 3 irq, 2 softirq, 8 idle, 4 iowait
# and 3 steal; cpu1 had 100 idle.
CPU_AT_1 = b"""cpu  150 10 70 1108 14 3 2 8 10 0
cpu0 90 10 40 508 9 3 2 8 10 0
cpu1 60 0 30 600 5 0 0 0 0 0
intr 9 9 9
"""


def raw(**changes: Any) -> RawSample:
    start = RawSample(
        time_ns=5_000 * MS,
        wall_minus_monotonic_ns=7,
        stat=CPU_AT_0,
        loadavg=b"0.45 0.47 0.32 3/90 7469\n",
        statm=b"765 512 398 5 0 123 0\n",
        throttling=(b"nr_periods 3\nnr_throttled 2\nthrottled_time 4000000\n",),
        own_cpu_s=1.0,
        voluntary=10,
        involuntary=20,
        major_faults=1,
        affinity={0, 1},
    )
    return start._replace(**changes)


def second_later(**changes: Any) -> RawSample:
    later = {"time_ns": 6_000 * MS, "stat": CPU_AT_1, "own_cpu_s": 1.5, "voluntary": 13, "involuntary": 27}
    return raw(**{**later, **changes})


def test_cpu_time_is_split_into_us_others_steal_and_waiting() -> None:
    series = to_series([raw(), second_later()], ticks_per_s=100)
    assert {name: values[1] for name, values in series.items() if name.endswith("_ms")} == {
        "user_ms": 600,
        "system_ms": 250,
        "busy_ms": 850,
        "iowait_ms": 40,
        "steal_ms": 30,
        "own_cpu_ms": 500,
        "others_ms": 350,
        "throttled_ms": 0,
    }
    # Of 2000 ms of CPU time.
    assert {name: values[1] for name, values in series.items() if name.endswith("_percent")} == {
        "cpu_busy_percent": 42.5,
        "user_percent": 30,
        "system_percent": 12.5,
        "iowait_percent": 2,
        "steal_percent": 1.5,
        "own_busy_percent": 25,
        "others_busy_percent": 17.5,
    }


def test_counters_start_at_zero_and_shares_at_none() -> None:
    series = to_series([raw(), second_later()], ticks_per_s=100)
    assert series["busy_ms"][0] == series["own_cpu_ms"][0] == series["throttled_ms"][0] == 0
    assert series["cpu_busy_percent"][0] is None
    assert series["voluntary_switches"] == [0, 3]
    assert series["involuntary_switches"] == [0, 7]
    assert series["major_faults"] == [0, 0]


def test_gauges_are_read_as_they_stand() -> None:
    series = to_series([raw(), second_later(loadavg=b"1.5 0 0 1/1 1")])
    assert series["time_ns"] == [5_000 * MS, 6_000 * MS]
    assert series["load_1min"] == [0.45, 1.5]
    assert series["rss_mb"] == [2, 2]
    assert series["wall_minus_monotonic_ns"] == [7, 7]


def test_only_the_cpus_that_we_may_use_count() -> None:
    series = to_series([raw(affinity={1}), second_later(affinity={1}, own_cpu_s=1.0)], ticks_per_s=100)
    assert series["cpu_busy_percent"][1] == 0
    assert series["allowed_cpus"] == [1, 1]
    series = to_series([raw(affinity={0}), second_later(affinity={0})], ticks_per_s=100)
    assert series["cpu_busy_percent"][1] == 85
    assert series["others_busy_percent"][1] == 35


def test_each_interval_has_its_own_share() -> None:
    middle = raw(time_ns=5_500 * MS, stat=CPU_AT_0.replace(b"cpu0 40", b"cpu0 60"), own_cpu_s=1.1)
    series = to_series([raw(), middle, second_later()], ticks_per_s=100)
    # 200 ms of 2 x 500 ms, then 650 ms; 100 ms of our own, then 400 ms
    assert series["cpu_busy_percent"] == [None, 20, 65]
    assert series["own_busy_percent"][1:] == [pytest.approx(10), pytest.approx(40)]
    assert series["others_busy_percent"][1:] == [pytest.approx(10), pytest.approx(25)]


def test_a_share_is_never_above_all_of_it() -> None:
    # 850 ms of ticks fall into 100 ms: the ticks were counted late.
    series = to_series([raw(affinity={0}), second_later(time_ns=5_100 * MS, affinity={0})], ticks_per_s=100)
    assert series["cpu_busy_percent"][1] == 100


def test_a_container_that_numbers_its_cpus_otherwise_gets_the_total() -> None:
    series = to_series([raw(affinity={17}), second_later(affinity={17})], ticks_per_s=100)
    assert series["cpu_busy_percent"][1] == 42.5


def test_rounding_never_makes_others_negative() -> None:
    series = to_series([raw(), second_later(own_cpu_s=1.86)], ticks_per_s=100)
    assert series["others_ms"][1] == 0
    assert series["others_busy_percent"][1] == 0


def test_throttling_of_v1_is_in_ns_and_of_v2_in_us() -> None:
    v1 = second_later(throttling=(b"nr_throttled 5\nthrottled_time 34000000\n",))
    assert to_series([raw(), v1])["throttled_ms"] == [0, 30]
    v2_start = raw(throttling=(b"usage_usec 9\nnr_throttled 2\nthrottled_usec 1000\n",))
    v2_end = second_later(throttling=(b"usage_usec 99\nnr_throttled 5\nthrottled_usec 251000\n",))
    series = to_series([v2_start, v2_end])
    assert series["throttled_ms"] == [0, 250]
    assert series["throttled_periods"] == [0, 3]


def test_the_most_throttled_level_counts_and_a_level_without_the_field_does_not() -> None:
    start = raw(throttling=(b"throttled_usec 0", b"throttled_usec 5000", b"usage_usec 1"))
    end = second_later(throttling=(b"throttled_usec 2000", b"throttled_usec 12000", b"usage_usec 2"))
    assert to_series([start, end])["throttled_ms"] == [0, 7]


def test_what_could_not_be_read_is_none_in_a_full_column() -> None:
    nothing = {"stat": b"", "loadavg": b"", "statm": b"", "throttling": ()}
    series = to_series([raw(**nothing), second_later(**nothing)])
    for name in ("busy_ms", "others_ms", "cpu_busy_percent", "load_1min", "rss_mb", "throttled_ms"):
        assert series[name] == [None, None], name


def test_columns_are_equally_long_and_json() -> None:
    samples = [raw(), second_later(stat=b""), second_later(time_ns=6_001 * MS, affinity={0})]
    series = json.loads(json.dumps(to_series(samples)))
    assert {len(values) for values in series.values()} == {3}
    assert series["affinity_changed"] == [0, 0, 1]


def test_two_samples_of_one_moment_have_no_share() -> None:
    assert to_series([raw(), second_later(time_ns=5_000 * MS)])["cpu_busy_percent"] == [None, None]


def test_gpu_columns_exist_only_with_a_gpu_and_survive_its_loss() -> None:
    assert not [name for name in to_series([raw(), second_later()]) if "gpu" in name or name == "power_w"]
    gpu = GpuSample(87, 2048.0, 1395, 1215, 61, 287.5, 5_000_000, 4, 3, (11, 12))
    samples = [raw(gpu=gpu), second_later(gpu=None), second_later(gpu=GpuSample(energy_mj=5_250_000))]
    series = to_series(samples)
    assert series["energy_j"] == [0, None, pytest.approx(250)]
    assert series["power_w"] == [287.5, None, None]
    assert series["gpu_utilisation_percent"][0] == 87
    assert series["sm_clock_mhz"][0] == 1395
    assert series["gpu_throttle_reasons"][0] == 4
    assert series["foreign_gpu_processes"] == [2, None, None]
    assert series["foreign_gpu_pid"] == [11, None, None]
