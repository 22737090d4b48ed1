"""Find the cgroup directories that limit this process: v1, v2 and hybrid, in a namespace or not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from gputax.worker.probes.files import read_text


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


def hierarchies(controller: str, root: Path = Path("/")) -> tuple[Hierarchy, ...]:
    """Return the v1 hierarchy of the controller and the v2 hierarchy, as far as they are mounted."""
    own = _own_paths(root)
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


def _own_paths(root: Path) -> dict[str, str]:
    """Map each v1 controller, and "" for v2, to the path of this process."""
    paths: dict[str, str] = {}
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
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
