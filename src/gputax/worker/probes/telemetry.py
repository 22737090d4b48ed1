"""Sample host, GPU and our own time while a load runs, without disturbing it: raw bytes now, parsing after the end."""

from __future__ import annotations

import os
import resource
import threading
import time
from pathlib import Path
from typing import Protocol

from gputax.worker.probes.limits import current_affinity, throttling_levels
from gputax.worker.probes.nvidia import GpuSample
from gputax.worker.probes.series import RawSample, TelemetrySeries, to_series

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

    def __init__(self, interval_s: float = 0.5, nvml: GpuSource | None = None, root: Path = Path("/")) -> None:
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
        # Only the CPU lines at the head of /proc/stat are needed; a line has ten counters.
        self._stat_size = max(4096, 160 * (2 + (os.cpu_count() or 1)))
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
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return RawSample(
            time_ns,
            offset_ns,
            _pread(self._stat, self._stat_size),
            _pread(self._loadavg, 128),
            _pread(self._statm, 128),
            tuple(_pread(descriptor, 1024) for descriptor in self._throttling),
            usage.ru_utime + usage.ru_stime,
            usage.ru_nvcsw,
            usage.ru_nivcsw,
            usage.ru_majflt,
            current_affinity(self._pid),
            None if self._nvml is None else self._nvml.sample(),
        )


class OwnTime:
    """CPU time of this process, and the time its threads waited in the run queue, inside a `with` block.

    Opened before and closed after, so that a block's two ends cost one `pread` per thread (2 µs) and nothing else.
    Threads that start or end inside the block are not counted: an engine's pool exists before the first run.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        # /proc/self/schedstat is that of the main thread alone.
        tasks = root / "proc/self/task"
        self._threads = tuple(_open(thread / "schedstat") for thread in (tasks.iterdir() if tasks.is_dir() else ()))
        self.run_wait_ns: int | None = None
        """None if the kernel does not count it (no CONFIG_SCHED_INFO)."""
        self.cpu_ns = 0

    def __enter__(self) -> None:
        self._waits, self._cpu_ns = self._read(), time.process_time_ns()

    def __exit__(self, *_: object) -> None:
        self.cpu_ns = time.process_time_ns() - self._cpu_ns
        both = zip(self._waits, self._read(), strict=True)
        known = [int(end.split()[1]) - int(start.split()[1]) for start, end in both if start and end]
        self.run_wait_ns = sum(known) if known else None

    def close(self) -> None:
        """Close the files."""
        for descriptor in self._threads:
            if descriptor >= 0:
                os.close(descriptor)

    def _read(self) -> list[bytes]:
        return [_pread(descriptor, 64) for descriptor in self._threads]


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
