"""What limits this process: its cgroup directories (v1, v2, hybrid), and how many CPUs it can actually use."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputax.worker.probes.files import read_int, read_text

# The limit of a container or pod, told by whoever started it: some sandboxes show no control groups inside.
TOLD_VARIABLE = "GPUTAX_LIMIT_CPUS"


@dataclass(frozen=True)
class Hierarchy:
    """One mounted hierarchy, with every directory in it whose limits apply to this process."""

    version: int
    levels: tuple[Path, ...]
    """The process's own directory first, then its parents up to the mount point."""


@dataclass(frozen=True)
class _Mount:
    version: int
    controllers: frozenset[str]
    root: str
    point: Path


def hierarchies(controller: str, root: Path = Path("/"), process: str = "self") -> tuple[Hierarchy, ...]:
    """Return the v1 hierarchy of the controller and the v2 hierarchy, as far as they are mounted."""
    own = _own_paths(root, process)
    mounts = [m for m in _mounts(root) if m.version == 2 or controller in m.controllers]
    found = []
    for version, path in ((1, own.get(controller)), (2, own.get(""))):
        # A hierarchy may be mounted more than once (a kind node does so): take the one that shows our path.
        same = sorted((m for m in mounts if m.version == version), key=lambda m: not _below(path, m.root))
        if same:
            found.append(Hierarchy(version, _levels(path, same[0])))
    return tuple(found)


def own_cgroup_path(root: Path = Path("/")) -> str | None:
    """Return the longest path in /proc/self/cgroup: the one that says most about a container runtime."""
    return max(_own_paths(root).values(), key=len, default=None)


def _own_paths(root: Path, process: str = "self") -> dict[str, str]:
    """Map each v1 controller, and "" for v2, to the path of this process, or of another one by its id."""
    paths: dict[str, str] = {}
    for line in (read_text(root / "proc" / process / "cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if colon:
            paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def _mounts(root: Path) -> list[_Mount]:
    mounts = []
    for line in (read_text(root / "proc/self/mountinfo") or "").splitlines():
        place, _, kind = line.partition(" - ")
        fields, types = place.split(), kind.split()
        if len(fields) >= 5 and len(types) >= 3 and types[0] in ("cgroup", "cgroup2"):
            version = 2 if types[0] == "cgroup2" else 1
            point = root / _unescaped(fields[4]).lstrip("/")
            mounts.append(_Mount(version, frozenset(types[2].split(",")), _unescaped(fields[3]), point))
    return mounts or _usual_mounts(root)


def _usual_mounts(root: Path) -> list[_Mount]:
    """Return where systemd mounts cgroups, for sandboxes that hide mountinfo."""
    base = root / "sys/fs/cgroup"
    if (base / "cgroup.controllers").exists():
        return [_Mount(2, frozenset(), "/", base)]
    return [_Mount(1, frozenset({name}), "/", base / name) for name in ("cpu", "memory") if (base / name).is_dir()]


def _unescaped(text: str) -> str:
    # The kernel writes blanks in mount points as octal: `\040`.
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)


def _below(path: str | None, mount_root: str) -> bool:
    return path is not None and (path + "/").startswith(mount_root.rstrip("/") + "/")


def _levels(path: str | None, mount: _Mount) -> tuple[Path, ...]:
    """Return our directory and its parents; the mount point alone if our path is not visible under it.

    Without a cgroup namespace a container sees `/docker/ID` in /proc/self/cgroup, while that directory itself
    is mounted; with a namespace it may see `/` or, for a process moved out of it, `/../other`.
    """
    inside = path[len(mount.root.rstrip("/")) :] if path and _below(path, mount.root) else (path or "")
    parts = [part for part in inside.split("/") if part]
    if ".." in parts or not mount.point.joinpath(*parts).is_dir():
        parts = []
    return tuple(mount.point.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1))


@dataclass(frozen=True)
class CpuAllowance:
    """The CPUs that the scheduler may give to this process."""

    affinity: tuple[int, ...]
    quota_cpus: float | None
    """None: no visible quota at any level."""
    quota_source: str
    """The file with the tightest quota; empty without one."""
    told_cpus: float | None = None
    """The limit that the coordinator told this process; it counts where no quota is visible."""

    @property
    def threads(self) -> int:
        """The number of threads that can run all the time: one more would only wait for the quota's next period."""
        known = self.told_cpus if self.quota_cpus is None else self.quota_cpus
        quota = math.inf if known is None else known
        return max(1, min(len(self.affinity), math.floor(min(quota, len(self.affinity)))))

    def to_dict(self) -> dict[str, Any]:
        """Return the allowance as sent in `describe`."""
        return {
            "affinity": list(self.affinity),
            "quota_cpus": self.quota_cpus,
            "quota_source": self.quota_source,
            **({} if self.told_cpus is None else {"told_cpus": self.told_cpus}),
            "threads": self.threads,
        }


def cpu_allowance(
    root: Path = Path("/"), affinity: Iterable[int] | None = None, environ: Mapping[str, str] = os.environ
) -> CpuAllowance:
    """Read the allowance of this process; its arguments can be faked in tests."""
    quotas = [quota for level in _cpu_levels(root) if (quota := level_quota(level))]
    cpus, source = min(quotas, default=(None, ""))
    told = told_cpus(environ)
    return CpuAllowance(tuple(sorted(current_affinity() if affinity is None else affinity)), cpus, source, told)


def quota_of_process(pid: int, root: Path = Path("/")) -> float | None:
    """Return the CPU quota of another process of this machine; None without one, or if the process is not here."""
    levels = [level for hierarchy in hierarchies("cpu", root, str(pid)) for level in hierarchy.levels]
    return min((quota[0] for level in levels if (quota := level_quota(level))), default=None)


def told_cpus(environ: Mapping[str, str]) -> float | None:
    """Return the limit that the coordinator told; None without one, or if it is not a number of CPUs."""
    try:
        told = float(environ.get(TOLD_VARIABLE) or "")
    except ValueError:
        return None
    return told if 0.0 < told < math.inf else None


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
