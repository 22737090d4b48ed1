"""How many CPUs this process can actually use: affinity and every cgroup quota, not the host's core count."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputax.worker.probes.cgroups import hierarchies
from gputax.worker.probes.files import read_int, read_text


@dataclass(frozen=True)
class CpuAllowance:
    """The CPUs that the scheduler may give to this process."""

    affinity: tuple[int, ...]
    quota_cpus: float | None
    """None: no visible quota at any level."""
    quota_source: str
    """The file with the tightest quota; empty without one."""

    @property
    def threads(self) -> int:
        """The number of threads that can run all the time: one more would only wait for the quota's next period."""
        quota = math.inf if self.quota_cpus is None else self.quota_cpus
        return max(1, min(len(self.affinity), math.floor(min(quota, len(self.affinity)))))

    def to_dict(self) -> dict[str, Any]:
        """Return the allowance as sent in `describe`."""
        return {
            "affinity": list(self.affinity),
            "quota_cpus": self.quota_cpus,
            "quota_source": self.quota_source,
            "threads": self.threads,
        }


def cpu_allowance(root: Path = Path("/"), affinity: Iterable[int] | None = None) -> CpuAllowance:
    """Read the allowance of this process; `root` and `affinity` can be faked in tests."""
    quotas = [quota for level in _cpu_levels(root) if (quota := level_quota(level))]
    cpus, source = min(quotas, default=(None, ""))
    return CpuAllowance(tuple(sorted(current_affinity() if affinity is None else affinity)), cpus, source)


def current_affinity(pid: int = 0) -> set[int]:
    """Return the CPUs that the calling thread, or the main thread of `pid`, is bound to."""
    if hasattr(os, "sched_getaffinity"):  # macOS has none
        return os.sched_getaffinity(pid)
    return set(range(os.cpu_count() or 1))


def level_quota(level: Path) -> tuple[float, str] | None:
    """Return the quota in CPUs that one cgroup directory sets, and its file."""
    quota, period, source = _v2_quota(level / "cpu.max") or _v1_quota(level) or (0, 0, "")
    return (quota / period, source) if quota > 0 and period > 0 else None


def throttling_levels(root: Path = Path("/")) -> tuple[Path, ...]:
    """Return the directories whose `cpu.stat` reports throttling: our own, and each parent with a quota."""
    levels = []
    for hierarchy in hierarchies("cpu", root):
        own, *parents = hierarchy.levels
        levels += [own, *(parent for parent in parents if level_quota(parent))]
    return tuple(levels)


def _cpu_levels(root: Path) -> list[Path]:
    return [level for hierarchy in hierarchies("cpu", root) for level in hierarchy.levels]


def _v2_quota(path: Path) -> tuple[int, int, str] | None:
    fields = (read_text(path) or "").split()
    if len(fields) == 2 and all(field.isdigit() for field in fields):  # without a quota: `max 100000`
        return int(fields[0]), int(fields[1]), str(path)
    return None


def _v1_quota(level: Path) -> tuple[int, int, str] | None:
    path = level / "cpu.cfs_quota_us"
    quota, period = read_int(path), read_int(level / "cpu.cfs_period_us")
    return None if quota is None or period is None else (quota, period, str(path))  # without a quota: -1
