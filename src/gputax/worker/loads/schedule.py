"""LoadGen's own arrival times, computed again, so that server latency can count from the scheduled time.

LoadGen logs no per-query times (its trace costs up to half the rate), but its schedule is a pure function of seed
and rate: gaps from `std::exponential_distribution` over `std::mt19937`. Latency from the moment of issue would hide
every delay of the issuing thread (coordinated omission).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
# Issue times lie on the computed schedule to within the thread's own lateness; a query can never be early by more
# than clock reading noise, so anything beyond this means the two do not belong together.
EARLY_TOLERANCE_NS = 1_000_000


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


def scheduled_times_ns(issued_ns: Int64Array, seed: int, rate_per_s: float) -> Int64Array | None:
    """Return each query's scheduled time on the clock of `issued_ns`, or None where the schedule does not fit."""
    if len(issued_ns) == 0:
        return issued_ns
    offsets = poisson_offsets_ns(seed, rate_per_s, len(issued_ns))
    lateness_ns = issued_ns - offsets
    start_ns = lateness_ns[0]  # the first query is scheduled at the start itself and issued microseconds later
    if lateness_ns.min() < start_ns - EARLY_TOLERANCE_NS:
        return None
    return offsets + min(int(start_ns), int(lateness_ns.min()))
