"""Which MIG profile gives so many slices: by MIG's own arithmetic, with the one name that differs; pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from gputax.errors import UsageError
from gputax.kubernetes.nodes import MIG_RESOURCE, PRODUCT_LABEL, NodeFacts

# The users' own: an A100 with 80 GB. Used where nobody tells the device's memory.
DEFAULT_MEMORY_MB = 80 * 1024
_PROFILE = re.compile(r"(\d+)g\.(\d+)gb(\+[a-z.]+|-[a-z]+)?")


@dataclass(frozen=True)
class Geometry:
    """How a kind of GPU is cut: compute slices, memory slices, and what each size of an instance takes of both."""

    slices: int
    memory_slices: int
    sizes: dict[int, int]
    """Memory slices by compute slices."""


# Where NVIDIA's name is not what the arithmetic gives: 35.1 of the H200's 140.4 GiB are called 35, 70.2 are called 71.
ODD_NAMES = {("H200", 2): "2g.35gb"}
SEVEN = Geometry(7, 8, {1: 1, 2: 2, 3: 4, 7: 8})
FOUR = Geometry(4, 4, {1: 1, 2: 2, 4: 4})


def geometry(node: NodeFacts) -> Geometry:
    """Return how the node's GPU is cut; the A30 alone has four slices."""
    return FOUR if "A30" in _words(node) else SEVEN


def instances(size: int, cut: Geometry) -> int:
    """Return how many instances of a size fit."""
    return min(cut.slices // size, cut.memory_slices // cut.sizes[size])


def chosen_profile(node: NodeFacts, parts: int, wanted: str = "") -> str:
    """Return the profile: the one asked for, one that the node offers already, or the largest that fits."""
    if wanted:
        if not _PROFILE.fullmatch(wanted):
            raise UsageError(f"{wanted!r} is no MIG profile", next_step="e.g. --mig-profile 1g.10gb")
        return wanted
    there = [name for name in node.allocatable if name.startswith(MIG_RESOURCE) and node.offered(name) >= parts]
    if there:
        return sorted(there)[0].removeprefix(MIG_RESOURCE)
    cut = geometry(node)
    fitting = [size for size in cut.sizes if instances(size, cut) >= parts]
    if not fitting:
        raise UsageError(
            f"MIG cuts this GPU into at most {cut.slices} slices, {parts} tenants were asked for",
            where=f"node {node.name}",
            next_step=f"--tenants up to {cut.slices}, or leave mig out of --tech",
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
    """Return a profile's part of the device's compute slices."""
    found = _PROFILE.fullmatch(profile)
    return int(found[1]) / geometry(node).slices if found else None


def memory_of_mb(profile: str) -> float | None:
    """Return the memory that a profile's name promises; what the driver reports is a little less."""
    found = _PROFILE.fullmatch(profile)
    return int(found[2]) * 1024.0 if found else None
