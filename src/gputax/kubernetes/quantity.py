"""Parse Kubernetes quantities."""

from __future__ import annotations

SCALES = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def quantity(text: str) -> float:
    """Convert a quantity to a number: `100m` is 0.1, `1Gi` is 2^30."""
    for suffix in sorted(SCALES, key=len, reverse=True):
        if text.endswith(suffix):
            return float(text.removesuffix(suffix)) * SCALES[suffix]
    return float(text or 0)
