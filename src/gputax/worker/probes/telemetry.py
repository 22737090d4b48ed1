"""Sample host, GPU and our own time while a load runs, as raw bytes; turn them into columns of numbers afterwards."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from gputax.worker.probes.host import MB
from gputax.worker.probes.limits import current_affinity, throttling_levels
from gputax.worker.probes.nvidia import GpuSample
from gputax.worker.probes.processes import Use

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
# v1 gives throttled_time in ns, v2 throttled_usec in µs.
THROTTLED_MS = {b"throttled_time": 1e-6, b"throttled_usec": 1e-3}
# Only the CPU lines at the head of /proc/stat are needed; a line has ten counters.
STAT_BYTES = max(4096, 160 * (2 + (os.cpu_count() or 1)))


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
    for name, fields in {
        "throttled_ms": THROTTLED_MS,
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


# At 0.5 s this is 17 minutes; then every second sample is dropped and the interval doubles, to bound memory.
MAX_SAMPLES = 2048
# Two clocks are read one after the other: if the thread was preempted between them, the pair is worthless.
CLOCK_PAIR_NS = 50_000
CLOCK_PAIR_TRIES = 4


class GpuSource(Protocol):
    """Anything that can read a GPU now; in production an `NvmlSampler`."""

    def sample(self) -> GpuSample:
        """Read all values now."""


class Telemetry:
    """A thread that samples between `start` and `stop`; both ends are always sampled, however short the span.

    Cost of a sample without a GPU (2-CPU KVM guest, Python 3.11): 28 µs of one CPU, of which 10 µs hold the
    GIL; the rest is the kernel writing /proc files with the GIL free. A thread that never leaves Python loses
    about 0.1 ms to it (the GIL changes hands at every file), which is 0.02 % at the default interval. NVML adds
    32 µs under the GIL (the real nvidia-ml-py over a stub driver); the driver's own time frees the GIL.
    """

    def __init__(
        self,
        interval_s: float = 0.5,
        nvml: GpuSource | None = None,
        root: Path = Path("/"),
        program: Callable[[], Use] = Use,
    ) -> None:
        self._program = program
        """What a program that is measured has used: that is not the work of others."""
        self._interval_s = interval_s
        self._nvml = nvml
        self._root = root
        self._pid = os.getpid()
        self._samples: list[RawSample] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def start(self) -> None:
        """Open the files, take the first sample and continue in a thread."""
        self._stat = _open(self._root / "proc/stat")
        self._loadavg = _open(self._root / "proc/loadavg")
        self._statm = _open(self._root / "proc/self/statm")
        self._throttling = tuple(_open(level / "cpu.stat") for level in throttling_levels(self._root))
        self._samples.append(self._sample())
        self._thread.start()

    def stop(self) -> TelemetrySeries:
        """Take the last sample, stop the thread, and parse."""
        self._end.set()
        self._thread.join()
        self._samples.append(self._sample())
        for descriptor in (self._stat, self._loadavg, self._statm, *self._throttling):
            if descriptor >= 0:
                os.close(descriptor)
        return to_series(self._samples)

    def _run(self) -> None:
        interval_s = self._interval_s
        while not self._end.wait(interval_s):
            self._samples.append(self._sample())
            if len(self._samples) >= MAX_SAMPLES:
                del self._samples[1::2]
                interval_s *= 2

    def _sample(self) -> RawSample:
        time_ns, offset_ns = clock_pair()
        # Not /proc/self/status: its context switches are only those of the main thread.
        usage, program = resource.getrusage(resource.RUSAGE_SELF), self._program()
        return RawSample(
            time_ns,
            offset_ns,
            _pread(self._stat, STAT_BYTES),
            _pread(self._loadavg, 128),
            _pread(self._statm, 128),
            tuple(_pread(descriptor, 1024) for descriptor in self._throttling),
            usage.ru_utime + usage.ru_stime + program.cpu_ns / 1e9,
            usage.ru_nvcsw + program.voluntary_switches,
            usage.ru_nivcsw + program.involuntary_switches,
            usage.ru_majflt,
            current_affinity(self._pid),
            None if self._nvml is None else self._nvml.sample(),
        )


class OwnTime:
    """What this process used and waited for inside a `with` block: CPU time, run queue, quota, steal, storage.

    Opened before and closed after, so that a block's two ends cost one `pread` per file (2 µs; /proc/stat 20 µs) and
    nothing else. Threads that start or end inside the block are not counted: an engine's pool exists before the first
    run.
    """

    def __init__(self, root: Path = Path("/"), throttling: Sequence[Path] = ()) -> None:
        # /proc/self/schedstat is that of the main thread alone.
        tasks = root / "proc/self/task"
        self._threads = tuple(_open(thread / "schedstat") for thread in (tasks.iterdir() if tasks.is_dir() else ()))
        self._throttling = tuple(_open(level / "cpu.stat") for level in throttling)
        self._stat = _open(root / "proc/stat")
        self._affinity = current_affinity()
        self.run_wait_ns: int | None = None
        """None if the kernel does not count it (no CONFIG_SCHED_INFO)."""
        self.cpu_ns = 0
        self.counters: dict[str, int] = {}
        self.throttled_ns: int | None = None
        """None without a control group that counts it."""
        self.steal_ns: int | None = None
        """Of the CPUs that we may use, in ticks of 10 ms."""
        self.major_faults = 0

    def __enter__(self) -> None:
        self._before = self._counters()
        self._waits, self._cpu_ns = self._read(), time.process_time_ns()

    def __exit__(self, *_: object) -> None:
        self.cpu_ns = time.process_time_ns() - self._cpu_ns
        both = zip(self._waits, self._read(), strict=True)
        known = [int(end.split()[1]) - int(start.split()[1]) for start, end in both if start and end]
        self.run_wait_ns = sum(known) if known else None
        (throttled, steal, faults), after = self._before, self._counters()
        # Levels overlap in time, so a sum would count twice: the most throttled one counts.
        grown = [b - a for a, b in zip(throttled, after[0], strict=True) if a is not None and b is not None]
        self.throttled_ns = round(max(grown) * 1e6) if grown else None
        if steal is not None and after[1] is not None:
            self.steal_ns = (after[1].steal - steal.steal) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        self.major_faults = after[2] - faults

    def close(self) -> None:
        """Close the files."""
        for descriptor in (*self._threads, *self._throttling, self._stat):
            if descriptor >= 0:
                os.close(descriptor)

    def _read(self) -> list[bytes]:
        return [_pread(descriptor, 64) for descriptor in self._threads]

    def _counters(self) -> tuple[list[float | None], _CpuTime | None, int]:
        throttled = [_field(_pread(descriptor, 1024), THROTTLED_MS) for descriptor in self._throttling]
        stat = _cpu_time(_pread(self._stat, STAT_BYTES), self._affinity)
        return throttled, stat, resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def clock_pair() -> tuple[int, int]:
    """Return the monotonic time and how far the wall clock is ahead of it."""
    best = (1 << 62, 0, 0)
    for _ in range(CLOCK_PAIR_TRIES):
        before = time.monotonic_ns()
        wall = time.time_ns()
        width = time.monotonic_ns() - before
        middle = before + width // 2
        best = min(best, (width, middle, wall - middle))
        if width < CLOCK_PAIR_NS:
            break
    return best[1:]


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _pread(descriptor: int, size: int) -> bytes:
    try:
        return os.pread(descriptor, size, 0) if descriptor >= 0 else b""
    except OSError:  # the cgroup was removed under us, the thread has ended
        return b""
