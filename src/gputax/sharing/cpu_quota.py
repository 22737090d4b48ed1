"""Control groups with a CPU quota, one per tenant, for cgroup v1 and v2; removed afterwards."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gputax.errors import PreflightError
from gputax.worker.probes.files import read_fields, read_text
from gputax.worker.probes.limits import Hierarchy, hierarchies, level_quota

PREFIX = "gputax-share-"
# With the kernel's default of 100 ms a quota causes stalls of up to 100 ms; with a tenth of it, a slower CPU.
# The kernel accepts periods of 1 ms to 1 s, and quotas of at least 1 ms.
PERIOD_US = 10_000
LEAST_QUOTA_US = 1_000
LONGEST_PERIOD_US = 1_000_000
# The weight of one ordinary process in each version's units, and the kernel's maximum.
WEIGHT, MOST_WEIGHT = {1: 1024, 2: 100}, {1: 262_144, 2: 10_000}
WEIGHT_FILE = {1: "cpu.shares", 2: "cpu.weight"}
# A group can be removed only some milliseconds after its last process was waited for.
REMOVE_TRIES, REMOVE_PAUSE_S = 100, 0.02


@dataclass(frozen=True)
class Quota:
    """The CPU time that a group may use in each period."""

    quota_us: int
    period_us: int

    @property
    def cpus(self) -> float:
        """The quota in CPUs."""
        return self.quota_us / self.period_us


def quota_of(cpus: float) -> Quota:
    """Return the quota for this number of CPUs, with the shortest period that the kernel accepts."""
    period_us = PERIOD_US
    while cpus * period_us < LEAST_QUOTA_US and period_us < LONGEST_PERIOD_US:
        period_us *= 10
    return Quota(max(LEAST_QUOTA_US, round(cpus * period_us)), period_us)


@dataclass(frozen=True)
class Throttling:
    """The kernel's counters of a group since its creation."""

    periods: int
    throttled: int


class QuotaGroup:
    """The group of one tenant."""

    def __init__(self, path: Path, quota: Quota) -> None:
        self.path, self.quota = path, quota

    def add(self, pid: int) -> None:
        """Move a process with all its threads into the group."""
        _write(self.path / "cgroup.procs", str(pid))

    def members(self) -> set[int]:
        """Return the processes in it."""
        return {int(word) for word in (read_text(self.path / "cgroup.procs") or "").split()}

    def effective_cpus(self) -> float | None:
        """Return the quota that the kernel reports."""
        found = level_quota(self.path)
        return found[0] if found else None

    def throttling(self) -> Throttling:
        """Return how often the quota was exhausted."""
        fields = read_fields(self.path / "cpu.stat")
        return Throttling(int(fields.get("nr_periods") or 0), int(fields.get("nr_throttled") or 0))


class QuotaGroups:
    """A directory with one group per tenant; its lock shows other runs that its owner is alive."""

    def __init__(self, root: Path = Path("/")) -> None:
        hierarchy = _cpu_hierarchy(root)
        self.version = hierarchy.version
        self._home = _Home(hierarchy)
        remove_leftovers(self._home.path)
        self.path = self._home.path / f"{PREFIX}{os.getpid()}-{secrets.token_hex(2)}"
        self._lock: int | None = None
        try:
            _make(self.path)
            self._lock = _locked(self.path)
            if self.version == 2:
                _write(self.path / "cgroup.subtree_control", "+cpu")
            self.weigh(1)
            # Fail here rather than in the middle of a measurement.
            self.group("probe", quota_of(0.1))
            _remove(self.path / "probe")
        except OSError as error:
            self.close()
            raise _refused(self.path, error) from error

    def weigh(self, tenants: int) -> None:
        """Give each of these tenants the weight of an ordinary process, as tenants without a group have.

        The scheduler counts all groups of a directory together as one process, unless the directory has more weight:
        with other load, 7 tenants got 0.4 CPUs of the 2 that they were entitled to (measured).
        """
        weight = min(WEIGHT[self.version] * tenants, MOST_WEIGHT[self.version])
        _write(self.path / WEIGHT_FILE[self.version], str(weight))

    def weight(self) -> int | None:
        """Return the total weight of all groups that the kernel reports."""
        text = read_text(self.path / WEIGHT_FILE[self.version])
        return int(text) if text and text.strip() else None

    def group(self, name: str, quota: Quota) -> QuotaGroup:
        """Return the group with this name and quota; create it if needed."""
        path = self.path / name
        _make(path)
        if self.version == 2:
            _write(path / "cpu.max", f"{quota.quota_us} {quota.period_us}")
        else:
            # The kernel rejects a quota above what the old period allows, so remove the old quota first.
            _write(path / "cpu.cfs_quota_us", "-1")
            _write(path / "cpu.cfs_period_us", str(quota.period_us))
            _write(path / "cpu.cfs_quota_us", str(quota.quota_us))
        return QuotaGroup(path, quota)

    def close(self) -> None:
        """Remove all groups; safe to call twice."""
        if self.path.is_dir():
            for path in _children(self.path):
                _remove(path)
            _remove(self.path)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        self._home.leave()


def remove_leftovers(parent: Path) -> list[str]:
    """Remove the groups of killed coordinators; return their names."""
    removed = []
    for path in sorted(parent.glob(f"{PREFIX}*")):
        with contextlib.suppress(OSError):
            descriptor = _locked(path)
            try:
                for child in _children(path):
                    _remove_now(child)
                _remove_now(path)
                removed.append(path.name)
            finally:
                os.close(descriptor)
    return removed


def _cpu_hierarchy(root: Path) -> Hierarchy:
    """Return the hierarchy with the active `cpu` controller: v1 if that is mounted, otherwise v2."""
    found = sorted(hierarchies("cpu", root), key=lambda hierarchy: hierarchy.version)
    for hierarchy in found:
        own = hierarchy.levels[0]
        if hierarchy.version == 1 or "cpu" in (read_text(own / "cgroup.controllers") or "").split():
            return hierarchy
    raise PreflightError(
        "no control group with a cpu controller found",
        where=str(found[0].levels[0]) if found else "/proc/self/cgroup",
        next_step="use --tech cpu-shared, which needs none; cpu-quota needs Linux with cgroups",
    )


class _Home:
    """The directory below which groups can be created.

    In v1 this is our own group. In v2 only the root may contain processes and also enable controllers for its children.
    So this is a group that already does, or our own group (a delegated scope) after we moved into a leaf of it.
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        own, top = hierarchy.levels[0], hierarchy.levels[-1]
        self.path, self._leaf = own, own / "gputax-coordinator"
        self._moved = False
        if hierarchy.version == 1:
            return
        for level in (own, top):
            if "cpu" in (read_text(level / "cgroup.subtree_control") or "").split() and os.access(level, os.W_OK):
                self.path = level
                return
        try:
            if (read_text(own / "cgroup.procs") or "").split() == [str(os.getpid())]:
                _make(self._leaf)
                _write(self._leaf / "cgroup.procs", str(os.getpid()))
                self._moved = True
            _write(own / "cgroup.subtree_control", "+cpu")
        except OSError as error:
            self.leave()
            raise _refused(own, error) from error

    def leave(self) -> None:
        """Move back to the original group."""
        if self._moved:
            with contextlib.suppress(OSError):
                _write(self.path / "cgroup.subtree_control", "-cpu")
            with contextlib.suppress(OSError):
                _write(self.path / "cgroup.procs", str(os.getpid()))
            _remove(self._leaf)
            self._moved = False


def _refused(path: Path, error: OSError) -> PreflightError:
    return PreflightError(
        f"cannot create a control group with a CPU quota: {error.strerror or error}",
        where=str(path),
        next_step="run as root, or under `systemd-run --user --scope -p Delegate=yes`; --tech cpu-shared needs neither",
    )


def _locked(path: Path) -> int:
    """Lock the directory until this process ends; raise BlockingIOError if another process holds the lock."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _children(path: Path) -> Iterator[Path]:
    return (child for child in sorted(path.iterdir()) if child.is_dir())


def _make(path: Path) -> None:
    path.mkdir(exist_ok=True)


def _remove_now(path: Path) -> None:
    path.rmdir()


def _remove(path: Path) -> None:
    for _ in range(REMOVE_TRIES):
        try:
            _remove_now(path)
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(REMOVE_PAUSE_S)


def _write(path: Path, text: str) -> None:
    # Without O_CREAT: in a directory that is not a control group this must fail instead of creating a file.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
