"""Choose the MIG profile for a number of slices by MIG's arithmetic, with one irregular name; pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from gputax.errors import UsageError
from gputax.kubernetes.nodes import MIG_RESOURCE, PRODUCT_LABEL, NodeFacts

# An A100 with 80 GB; used if the device's memory is unknown.
DEFAULT_MEMORY_MB = 80 * 1024
_PROFILE = re.compile(r"(\d+)g\.(\d+)gb(\+[a-z.]+|-[a-z]+)?")


@dataclass(frozen=True)
class Geometry:
    """How a GPU is partitioned: compute slices, memory slices, and what each instance size takes of both."""

    slices: int
    memory_slices: int
    sizes: dict[int, int]
    """Memory slices by compute slices."""


# Names that differ from the arithmetic: NVIDIA calls 35.1 of the H200's 140.4 GiB 35, but 70.2 GiB 71.
ODD_NAMES = {("H200", 2): "2g.35gb"}
SEVEN = Geometry(7, 8, {1: 1, 2: 2, 3: 4, 7: 8})
FOUR = Geometry(4, 4, {1: 1, 2: 2, 4: 4})


def geometry(node: NodeFacts) -> Geometry:
    """Return how the node's GPU is partitioned; only the A30 has four slices."""
    return FOUR if "A30" in _words(node) else SEVEN


def instances(size: int, cut: Geometry) -> int:
    """Return how many instances of a size fit."""
    return min(cut.slices // size, cut.memory_slices // cut.sizes[size])


def chosen_profile(node: NodeFacts, parts: int, wanted: str = "") -> str:
    """Return the requested profile, one that the node already offers, or the largest that fits."""
    if wanted:
        if not _PROFILE.fullmatch(wanted):
            raise UsageError(f"{wanted!r} is not a MIG profile", next_step="e.g. --mig-profile 1g.10gb")
        return wanted
    there = [name for name in node.allocatable if name.startswith(MIG_RESOURCE) and node.offered(name) >= parts]
    if there:
        return sorted(there)[0].removeprefix(MIG_RESOURCE)
    cut = geometry(node)
    fitting = [size for size in cut.sizes if instances(size, cut) >= parts]
    if not fitting:
        raise UsageError(
            f"MIG partitions this GPU into at most {cut.slices} slices, but {parts} tenants are requested",
            where=f"node {node.name}",
            next_step=f"use --tenants up to {cut.slices}, or remove mig from --tech",
        )
    size = max(fitting)
    odd = [name for (product, slices), name in ODD_NAMES.items() if product in _words(node) and slices == size]
    if odd:
        return odd[0]
    memory_gb = math.ceil((node.memory_mb or DEFAULT_MEMORY_MB) / 1024 * cut.sizes[size] / cut.memory_slices)
    return f"{size}g.{memory_gb}gb"


def _words(node: NodeFacts) -> list[str]:
    return node.label(PRODUCT_LABEL).split("-")


def share_of(profile: str, node: NodeFacts) -> float | None:
    """Return a profile's fraction of the device's compute slices."""
    found = _PROFILE.fullmatch(profile)
    return int(found[1]) / geometry(node).slices if found else None


def memory_of_mb(profile: str) -> float | None:
    """Return the memory in a profile's name; the driver reports slightly less."""
    found = _PROFILE.fullmatch(profile)
    return int(found[2]) * 1024.0 if found else None
