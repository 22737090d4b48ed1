"""Turn raw telemetry samples into columns of numbers; pure, and run only after the measurement has ended."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeAlias

from gputax.worker.probes.host import MB
from gputax.worker.probes.nvidia import GpuSample

TelemetrySeries: TypeAlias = dict[str, list[float | None]]
"""Equal-length columns, one row per sample; each name includes its unit.

- `*_ms`, `*_switches`, `*_periods`, `*_faults` and `energy_j` count from the first sample: the last row is
  the total;
- `*_percent` of CPU time are of the interval that ends at the row (None in the first row), and of all the
  CPUs that the process may use (`allowed_cpus`), not of the machine: other CPUs do not matter;
- all others are the reading at the row's moment. Unreadable values are None.
"""


class RawSample(NamedTuple):
    """One reading, as bytes where the kernel gave bytes."""

    time_ns: int
    wall_minus_monotonic_ns: int
    stat: bytes
    loadavg: bytes
    statm: bytes
    throttling: tuple[bytes, ...]
    own_cpu_s: float
    voluntary: int
    involuntary: int
    major_faults: int
    affinity: Collection[int]
    gpu: GpuSample | None = None


class _CpuTime(NamedTuple):
    """Ticks since boot of the CPUs we may use, and the number of those CPUs."""

    user: int
    system: int
    iowait: int
    steal: int
    cpus: int

    @property
    def busy(self) -> int:
        return self.user + self.system


Column = list[float | None]


def to_series(samples: Sequence[RawSample], ticks_per_s: int | None = None) -> TelemetrySeries:
    """Parse the samples into columns."""
    first = samples[0]
    tick_ms = 1e3 / (ticks_per_s or os.sysconf("SC_CLK_TCK"))
    series: TelemetrySeries = {
        "time_ns": [sample.time_ns for sample in samples],
        "wall_minus_monotonic_ns": [sample.wall_minus_monotonic_ns for sample in samples],
        "allowed_cpus": [len(sample.affinity) for sample in samples],
        "affinity_changed": [int(set(sample.affinity) != set(first.affinity)) for sample in samples],
        "load_1min": [_first_number(sample.loadavg) for sample in samples],
        "rss_mb": [_rss_mb(sample.statm) for sample in samples],
        "own_cpu_ms": [(sample.own_cpu_s - first.own_cpu_s) * 1e3 for sample in samples],
        "voluntary_switches": [sample.voluntary - first.voluntary for sample in samples],
        "involuntary_switches": [sample.involuntary - first.involuntary for sample in samples],
        "major_faults": [sample.major_faults - first.major_faults for sample in samples],
    }
    _add_cpu_time(series, [_cpu_time(sample.stat, first.affinity) for sample in samples], tick_ms)
    _add_throttling(series, samples)
    if first.gpu is not None:
        _add_gpu(series, [sample.gpu or GpuSample() for sample in samples])
    return series


def _add_cpu_time(series: TelemetrySeries, times: list[_CpuTime | None], tick_ms: float) -> None:
    """Add the counters in ms and their shares per interval."""
    cpus = times[0].cpus if times[0] else 0
    for name in ("user", "system", "busy", "iowait", "steal"):
        series[f"{name}_ms"] = _since_first([None if t is None else getattr(t, name) for t in times], tick_ms)
    # Ticks are quantised (10 ms) while our own time is exact, so a short interval may come out below zero.
    series["others_ms"] = [
        None if busy is None or own is None else max(0.0, busy - own)
        for busy, own in zip(series["busy_ms"], series["own_cpu_ms"], strict=True)
    ]
    shares = {
        "cpu_busy": "busy",
        "user": "user",
        "system": "system",
        "iowait": "iowait",
        "steal": "steal",
        "own_busy": "own_cpu",
        "others_busy": "others",
    }
    for name, source in shares.items():
        series[f"{name}_percent"] = _shares(series[f"{source}_ms"], series["time_ns"], cpus)


def _cpu_time(stat: bytes, allowed: Collection[int]) -> _CpuTime | None:
    """Sum the lines of the allowed CPUs; the machine's total if a container numbers its CPUs differently."""
    lines = dict(line.split(maxsplit=1) for line in stat.splitlines() if line.startswith(b"cpu") and b" " in line)
    rows = [lines[name] for cpu in allowed if (name := b"cpu%d" % cpu) in lines]
    cpus = len(rows)
    if cpus < len(allowed) and b"cpu" in lines:
        rows, cpus = [lines[b"cpu"]], max(1, len(lines) - 1)
    # user nice system idle iowait irq softirq steal guest guest_nice; guest time is already in user and nice.
    numbers = [[int(field) for field in row.split()] + [0] * 8 for row in rows]
    if not numbers:
        return None
    user, nice, system, _, iowait, irq, softirq, steal = (sum(row[i] for row in numbers) for i in range(8))
    return _CpuTime(user + nice, system + irq + softirq, iowait, steal, cpus)


def _add_throttling(series: TelemetrySeries, samples: Sequence[RawSample]) -> None:
    """Add the throttling of the most throttled level: levels overlap in time, so a sum would count twice."""
    # v1 gives throttled_time in ns, v2 throttled_usec in µs.
    for name, fields in {
        "throttled_ms": {b"throttled_time": 1e-6, b"throttled_usec": 1e-3},
        "throttled_periods": {b"nr_throttled": 1.0},
    }.items():
        levels = [
            _since_first([_field(sample.throttling[level], fields) for sample in samples])
            for level in range(len(samples[0].throttling))
        ]
        known = [level for level in levels if level[0] is not None]
        series[name] = [
            max((value for value in row if value is not None), default=None)
            for row in (zip(*known, strict=True) if known else [()] * len(samples))
        ]


def _field(text: bytes, units: dict[bytes, float]) -> float | None:
    for line in text.splitlines():
        name, _, value = line.partition(b" ")
        if name in units:
            return int(value) * units[name]
    return None


def _add_gpu(series: TelemetrySeries, gpus: list[GpuSample]) -> None:
    def column(read: Callable[[GpuSample], float | None]) -> Column:
        return [read(gpu) for gpu in gpus]

    series["gpu_utilisation_percent"] = column(lambda gpu: gpu.utilisation_percent)
    series["gpu_memory_used_mb"] = column(lambda gpu: gpu.memory_used_mb)
    series["sm_clock_mhz"] = column(lambda gpu: gpu.sm_clock_mhz)
    series["memory_clock_mhz"] = column(lambda gpu: gpu.memory_clock_mhz)
    series["gpu_temperature_c"] = column(lambda gpu: gpu.temperature_c)
    series["power_w"] = column(lambda gpu: gpu.power_w)
    series["energy_j"] = _since_first(column(lambda gpu: gpu.energy_mj), 1e-3)
    series["gpu_throttle_reasons"] = column(lambda gpu: gpu.throttle_reasons)
    series["gpu_processes"] = column(lambda gpu: gpu.processes)
    foreign = [gpu.foreign_pids for gpu in gpus]
    series["foreign_gpu_processes"] = [None if pids is None else len(pids) for pids in foreign]
    series["foreign_gpu_pid"] = [pids[0] if pids else None for pids in foreign]


def _since_first(counter: Sequence[float | None], unit: float = 1.0) -> Column:
    """Return the counter from its first reading on, in another unit."""
    start = next((value for value in counter if value is not None), 0)
    return [None if value is None else (value - start) * unit for value in counter]


def _shares(counter_ms: Column, time_ns: Column, cpus: int) -> Column:
    """Return the growth per interval as a percentage of the time of all CPUs."""
    shares: Column = [None]
    for i in range(1, len(counter_ms)):
        before, after, start, end = counter_ms[i - 1], counter_ms[i], time_ns[i - 1], time_ns[i]
        if before is None or after is None or start is None or end is None or end <= start or not cpus:
            shares.append(None)
        else:
            shares.append(min(100.0, max(0.0, (after - before) * 1e6 * 100 / ((end - start) * cpus))))
    return shares


def _rss_mb(statm: bytes) -> float | None:
    fields = statm.split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / MB if len(fields) > 1 else None


def _first_number(text: bytes) -> float | None:
    fields = text.split()
    return float(fields[0]) if fields else None
