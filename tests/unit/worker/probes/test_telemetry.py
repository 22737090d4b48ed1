"""The sampler against the real /proc, and its clocks against made ones."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gputax.worker.probes import telemetry as module
from gputax.worker.probes.disturbance import disturbances
from gputax.worker.probes.nvidia import GpuSample
from gputax.worker.probes.telemetry import OwnTime, Telemetry, clock_pair

Plant = Callable[[dict[str, str]], Path]


def spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_even_the_shortest_span_has_two_samples() -> None:
    telemetry = Telemetry()
    telemetry.start()
    series = telemetry.stop()
    assert {len(values) for values in series.values()} == {2}
    first, last = series["time_ns"]
    assert first is not None
    assert last is not None
    assert first < last


def test_our_own_cpu_time_is_counted_for_every_thread() -> None:
    telemetry = Telemetry(interval_s=0.05)
    telemetry.start()
    threads = [threading.Thread(target=spin, args=(0.1,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    series = json.loads(json.dumps(telemetry.stop()))
    assert len(series["time_ns"]) >= 3
    assert 190 < series["own_cpu_ms"][-1] < 400
    assert series["own_cpu_ms"] == sorted(series["own_cpu_ms"])
    assert series["rss_mb"][0] > 5
    assert series["allowed_cpus"][0] == len(os.sched_getaffinity(0))
    assert series["voluntary_switches"][-1] + series["involuntary_switches"][-1] > 0
    assert 0 < series["cpu_busy_percent"][1] <= 100


def test_files_and_thread_are_gone_after_the_end() -> None:
    before = (len(os.listdir("/proc/self/fd")), threading.active_count())  # noqa: PTH208
    telemetry = Telemetry(interval_s=0.01)
    telemetry.start()
    assert threading.active_count() == before[1] + 1
    telemetry.stop()
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before  # noqa: PTH208


def test_a_system_without_any_of_the_files_is_sampled_too(tmp_path: Path) -> None:
    telemetry = Telemetry(root=tmp_path)
    telemetry.start()
    series = telemetry.stop()
    assert series["busy_ms"] == [None, None]
    assert series["own_cpu_ms"][0] == 0


def test_the_files_are_read_anew_each_time(plant: Plant) -> None:
    root = plant({"proc/loadavg": "0.25 0 0 1/1 1\n", "proc/stat": "cpu 1 0 0 0 0 0 0 0 0 0\n"})
    telemetry = Telemetry(root=root)
    telemetry.start()
    plant({"proc/loadavg": "3.75 0 0 1/1 1\n"})
    assert telemetry.stop()["load_1min"] == [0.25, 3.75]


def test_the_gpu_is_sampled_along() -> None:
    class Gpu:
        def sample(self) -> GpuSample:
            return GpuSample(power_w=100.0)

    telemetry = Telemetry(nvml=Gpu())
    telemetry.start()
    assert telemetry.stop()["power_w"] == [100, 100]


def test_a_long_run_keeps_its_ends_and_bounds_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SAMPLES", 8)
    started = time.monotonic_ns()
    telemetry = Telemetry(interval_s=0.002)
    telemetry.start()
    time.sleep(0.2)
    times = telemetry.stop()["time_ns"]
    assert 3 <= len(times) <= 9
    assert times[0] is not None
    assert times[-1] is not None
    assert times[0] - started < 100e6
    assert times[-1] - times[0] >= 200e6


def test_a_wall_clock_that_is_set_during_the_run_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    telemetry = Telemetry()
    telemetry.start()
    true_time = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: true_time() - 2_000_000_000)
    jumps = [notice for notice in disturbances(telemetry.stop()) if notice.code == "clock-jump"]
    assert [jump.value for jump in jumps] == [pytest.approx(-2000, abs=1)]


def test_a_steady_wall_clock_is_not_noticed() -> None:
    telemetry = Telemetry(interval_s=0.01)
    telemetry.start()
    time.sleep(0.1)
    assert "clock-jump" not in {notice.code for notice in disturbances(telemetry.stop())}


def test_an_affinity_that_changes_during_the_run_is_noticed() -> None:
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("with one CPU there is nothing to change")
    telemetry = Telemetry()
    telemetry.start()
    os.sched_setaffinity(0, {min(before)})
    try:
        series = telemetry.stop()
    finally:
        os.sched_setaffinity(0, before)
    notices = {notice.code: notice.value for notice in disturbances(series)}
    assert notices["affinity-changed"] == 1 - len(before)


def test_a_preempted_reading_of_the_clocks_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first pair of readings is 30 ms apart, the second 2 µs.
    monotonic = iter([0, 30_000_000, 40_000_000, 40_002_000])
    wall = iter([1_030_000_000, 1_040_001_000])
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(monotonic))
    monkeypatch.setattr(time, "time_ns", lambda: next(wall))
    assert clock_pair() == (40_001_000, 1_000_000_000)


def test_without_a_good_reading_of_the_clocks_the_narrowest_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    widths = [9_000_000, 4_000_000, 6_000_000, 8_000_000]
    monotonic = iter([value for i, width in enumerate(widths) for value in (i * 10**8, i * 10**8 + width)])
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(monotonic))
    monkeypatch.setattr(time, "time_ns", lambda: 5 * 10**9)
    assert clock_pair() == (10**8 + 2_000_000, 5 * 10**9 - 10**8 - 2_000_000)


def test_the_run_queue_wait_is_summed_over_threads_and_a_kernel_without_it_gives_none(plant: Plant) -> None:
    threads = {f"proc/self/task/{number}/schedstat": f"9000 {number} 3\n" for number in (7, 8, 9)}
    own = OwnTime(root := plant(threads))
    with own:
        spin(0.02)
        plant({"proc/self/task/7/schedstat": "9000 1007 3\n", "proc/self/task/9/schedstat": "9500 3009 4\n"})
        (root / "proc/self/task/8/schedstat").write_bytes(b"")  # ended: its file reads as nothing
    own.close()
    assert own.run_wait_ns == 4000
    assert own.cpu_ns >= 20_000_000
    without = OwnTime(plant({}) / "nowhere")
    with without:
        pass
    assert without.run_wait_ns is None


def test_our_own_wait_is_noticed_for_every_thread_when_they_compete_for_one_cpu() -> None:
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("the kernel does not count run-queue wait")
    release, end = threading.Event(), threading.Event()

    def compete() -> None:
        release.wait()
        with Path("/dev/zero").open("rb") as file:
            while not end.is_set():
                file.read(1 << 20)  # in the kernel, without the GIL

    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    threads = [threading.Thread(target=compete) for _ in range(3)]
    try:
        for thread in threads:
            thread.start()
        own = OwnTime()
        with own:
            release.set()
            time.sleep(0.3)
        own.close()
    finally:
        os.sched_setaffinity(0, before)
        end.set()
        for thread in threads:
            thread.join()
    assert own.run_wait_ns is not None
    assert own.run_wait_ns > 200_000_000, "three threads on one CPU: together they wait twice the time"
