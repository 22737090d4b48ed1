"""What a loaded worker got from its host: weight, CPUs, memory placement, huge pages, clock, storage; read once."""

from __future__ import annotations

import ctypes
import os
import re
import resource
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gputax.worker.probes.files import read_fields, read_int, read_text
from gputax.worker.probes.host import MB
from gputax.worker.probes.limits import current_affinity, hierarchies

# The weight of an ordinary group in each version's units.
WEIGHT_FILES = {1: ("cpu.shares", 1024), 2: ("cpu.weight", 100)}
POLICIES = {0: "other", 1: "fifo", 2: "round-robin", 3: "batch", 5: "idle", 6: "deadline"}
PR_GET_THP_DISABLE = 42
_PAGES_ON_NODE = re.compile(r"\bN(\d+)=(\d+)")
KIB = 1024


def resource_facts(root: Path = Path("/"), affinity: Iterable[int] | None = None) -> dict[str, Any]:
    """Return the facts as JSON-able data; whatever the kernel does not tell is None."""
    cpus = sorted(current_affinity() if affinity is None else affinity)
    nodes = cpu_nodes(root, cpus)
    return {
        "cpus": cpus,
        "running_threads": _count(root / "proc/self/task"),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "policy": POLICIES.get(os.sched_getscheduler(0)) if hasattr(os, "sched_getscheduler") else None,
        "cpu_weight": cpu_weight(root),
        "cpu_mhz": cpu_mhz(root, cpus),
        "cpu_nodes": nodes,
        "remote_memory_share": remote_memory_share(root, nodes),
        **huge_pages(root),
        "read_mb": read_mb(root),
        "major_faults": resource.getrusage(resource.RUSAGE_SELF).ru_majflt,
    }


def cpu_weight(root: Path = Path("/")) -> float | None:
    """Return the smallest weight of our groups relative to an ordinary one; None if no group has a weight."""
    weights = []
    for hierarchy in hierarchies("cpu", root):
        name, ordinary = WEIGHT_FILES[hierarchy.version]
        # The root of a hierarchy competes with nobody.
        for level in hierarchy.levels[:-1] or hierarchy.levels:
            weight = read_int(level / name)
            weights += [weight / ordinary] if weight is not None else []
    return min(weights, default=None)


def cpu_mhz(root: Path, cpus: Iterable[int]) -> float | None:
    """Return the mean clock of these CPUs now, from cpufreq or else from /proc/cpuinfo."""
    system = root / "sys/devices/system/cpu"
    now = [read_int(system / f"cpu{cpu}/cpufreq/scaling_cur_freq") for cpu in cpus]
    known = [khz / 1e3 for khz in now if khz is not None]
    if not known:
        wanted = {str(cpu) for cpu in cpus}
        for block in (read_text(root / "proc/cpuinfo") or "").split("\n\n"):
            fields = {
                name.strip(): value.strip() for name, _, value in (line.partition(":") for line in block.split("\n"))
            }
            if fields.get("processor") in wanted and fields.get("cpu MHz"):
                known.append(float(fields["cpu MHz"]))
    return sum(known) / len(known) if known else None


def cpu_nodes(root: Path, cpus: Iterable[int]) -> list[int]:
    """Return the NUMA nodes of these CPUs."""
    wanted, found = set(cpus), set()
    for node in (root / "sys/devices/system/node").glob("node[0-9]*"):
        if wanted & numbers(read_text(node / "cpulist") or ""):
            found.add(int(node.name.removeprefix("node")))
    return sorted(found)


def numbers(text: str) -> set[int]:
    """Return the numbers of a kernel list such as `0-3,8`."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def remote_memory_share(root: Path, nodes: Iterable[int]) -> float | None:
    """Return the share of our pages on other NUMA nodes than our CPUs'; None on a machine with one node."""
    if len(list((root / "sys/devices/system/node").glob("node[0-9]*"))) < 2:
        return None
    pages: dict[int, int] = {}
    for node, count in _PAGES_ON_NODE.findall(read_text(root / "proc/self/numa_maps") or ""):
        pages[int(node)] = pages.get(int(node), 0) + int(count)
    total = sum(pages.values())
    return 1.0 - sum(pages.get(node, 0) for node in nodes) / total if total else None


def huge_pages(root: Path = Path("/")) -> dict[str, Any]:
    """Return the setting for transparent huge pages, whether our process opted out, and the share in use."""
    chosen = re.search(r"\[(\w+)\]", read_text(root / "sys/kernel/mm/transparent_hugepage/enabled") or "")
    usage = read_fields(root / "proc/self/smaps_rollup")
    anonymous, huge = (_kib(usage.get(name)) for name in ("Anonymous", "AnonHugePages"))
    return {
        "huge_pages": chosen[1] if chosen else None,
        "huge_pages_disabled": _opted_out(),
        "huge_share": huge / anonymous if huge is not None and anonymous else None,
    }


def read_mb(root: Path = Path("/")) -> float | None:
    """Return what this process had to fetch from storage so far: what the page cache had is not in it."""
    text = read_fields(root / "proc/self/io").get("read_bytes")
    return int(text) / MB if text and text.isdigit() else None


def _opted_out() -> bool | None:
    try:
        answer = ctypes.CDLL(None).prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0)
    except (OSError, AttributeError):
        return None
    return bool(answer) if answer >= 0 else None


def _kib(text: str | None) -> int | None:
    number = (text or "").removesuffix("kB").strip()
    return int(number) * KIB if number.isdigit() else None


def _count(directory: Path) -> int | None:
    return sum(1 for _ in directory.iterdir()) if directory.is_dir() else None
