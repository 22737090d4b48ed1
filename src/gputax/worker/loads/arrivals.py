"""The arrivals of the server scenario: LoadGen's own Poisson schedule, computed from its seed."""

from __future__ import annotations

import numpy as np

from gputax.worker.loads.recording import Int64Array


def poisson_offsets_ns(seed: int, rate_per_s: float, count: int) -> Int64Array:
    """Return the offsets from the start at which LoadGen schedules `count` server queries."""
    generator = np.random.MT19937()
    generator._legacy_seeding(seed % 2**32)  # the plain mt19937 seeding
    raw = generator.random_raw(2 * count).astype(np.float64)
    # libstdc++ builds a double from two 32-bit draws, the first one least significant.
    uniform = (raw[0::2] + raw[1::2] * 2.0**32) / 2.0**64
    gaps_ns = (-np.log(1.0 - uniform) / rate_per_s * 1e9).astype(np.int64)
    offsets = np.zeros(count, dtype=np.int64)
    np.cumsum(gaps_ns[:-1], out=offsets[1:])
    return offsets
