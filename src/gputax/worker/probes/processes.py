"""What a process and its descendants have used: CPU time, waiting for a CPU, context switches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from gputax.worker.probes.driver_library import DEVICE_NODES
from gputax.worker.probes.limits import throttling_levels

# v2 counts in µs, v1 in ns.
_THROTTLED = {"throttled_usec": 1, "throttled_time": 1000}
_SWITCHES = ("voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:")


class Use(NamedTuple):
    """Counters since the start; those of threads that have ended are missing where only live ones can be read."""

    cpu_ns: int = 0
    run_wait_ns: int = 0
    voluntary_switches: int = 0
    involuntary_switches: int = 0

    def plus(self, other: Use) -> Use:
        """Return the sum."""
        return Use(*(a + b for a, b in zip(self, other, strict=True)))

    def since(self, before: Use) -> Use:
        """Return the difference; a thread that ended in between must not make it negative."""
        return Use(*(max(0, a - b) for a, b in zip(self, before, strict=True)))


def with_descendants(pids: Iterable[int], root: Path = Path("/")) -> tuple[int, ...]:
    """Return the processes and all that descend from them, as far as they still run."""
    seen: dict[int, None] = {}
    waiting = list(pids)
    while waiting:
        pid = waiting.pop()
        if pid not in seen:
            seen[pid] = None
            for task in _tasks(root / f"proc/{pid}/task"):
                waiting += [int(child) for child in _read(task / "children").split()]
    return tuple(seen)


def program_facts(pids: Iterable[int], root: Path = Path("/")) -> dict[str, Any]:
    """Return the processes of a program, and the libraries and NVIDIA device nodes that they have open; sorted."""
    every = with_descendants(pids, root)
    lines = (line.split(maxsplit=5) for pid in every for line in _read(root / f"proc/{pid}/maps").splitlines())
    mapped = {fields[5].removesuffix(" (deleted)") for fields in lines if len(fields) == 6}
    opened = {target for pid in every for target in _open_files(root / f"proc/{pid}/fd")}
    return {
        "pids": list(every),
        "libraries": sorted(path for path in mapped if ".so" in path),
        "device_nodes": sorted(path for path in mapped | opened if path.startswith(DEVICE_NODES)),
    }


def _open_files(folder: Path) -> list[str]:
    found = []
    for entry in _tasks(folder):
        with contextlib.suppress(OSError):
            found.append(str(entry.readlink()))
    return found


def use_of(pids: Iterable[int], root: Path = Path("/")) -> Use:
    """Return the use of these processes and of all that descend from them."""
    total = Use()
    for pid in with_descendants(pids, root):
        for task in _tasks(root / f"proc/{pid}/task"):
            cpu_ns, wait_ns = ([int(field) for field in _read(task / "schedstat").split()[:2]] + [0, 0])[:2]
            status = dict(line.split(maxsplit=1) for line in _read(task / "status").splitlines() if "ctxt" in line)
            total = total.plus(Use(cpu_ns, wait_ns, *(int(status.get(name, "0")) for name in _SWITCHES)))
    return total


class ProgramTime:
    """What a program used inside a `with` block: the covariates of one half of a pair."""

    def __init__(self, used: Callable[[], Use], root: Path = Path("/")) -> None:
        self._used = used
        self._levels = tuple(level / "cpu.stat" for level in throttling_levels(root))
        self.run_wait_ns: int | None = None
        """How long its threads waited for a CPU; None for processes that have ended, of which nobody knows."""
        self.cpu_ns = 0
        self.throttled_ns: int | None = None
        self.steal_ns: int | None = None
        """Not counted here, and so are page faults."""
        self.major_faults: int | None = None
        self.counters: dict[str, int] = {}

    def __enter__(self) -> None:
        self._throttled, self._before = self._throttled_us(), self._used()

    def __exit__(self, *_: object) -> None:
        found, throttled = self._used().since(self._before), self._throttled_us()
        self.cpu_ns, self.run_wait_ns = found.cpu_ns, found.run_wait_ns or None
        self.counters = {
            "cpu_ns": found.cpu_ns,
            "voluntary_switches": found.voluntary_switches,
            "involuntary_switches": found.involuntary_switches,
        }
        if self._throttled is not None and throttled is not None:
            self.counters["throttled_us"] = throttled - self._throttled
            self.throttled_ns = self.counters["throttled_us"] * 1000

    def close(self) -> None:
        """Hold nothing."""

    def _throttled_us(self) -> int | None:
        """Return how long the control group's quota stopped its processes; None where nobody counts it."""
        found = [
            int(value) // per_us
            for path in self._levels
            for name, _, value in (line.partition(" ") for line in _read(path).splitlines())
            if (per_us := _THROTTLED.get(name))
        ]
        return max(found, default=None)


def _tasks(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # it has ended
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
