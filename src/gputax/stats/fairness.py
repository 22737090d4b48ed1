"""How evenly tenants were served."""

from __future__ import annotations

from numpy.typing import ArrayLike

from gputax.stats.inputs import finite_values


def jain_index(shares: ArrayLike) -> float:
    """Return (Σx)² / (n Σx²) of what each tenant got: 1 where all got the same, 1/n where one got all (Jain 1984)."""
    values = finite_values(shares, "what the tenants got", item="tenant")
    total, squares = float(values.sum()), float(values @ values)
    # Nobody got anything: that is even, and no number of any use to anybody.
    return total * total / (values.size * squares) if squares > 0.0 else 1.0
