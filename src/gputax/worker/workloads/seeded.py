"""Seeded numbers that are the same bytes on every machine, whatever the order of the requests."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import numpy.typing as npt

from gputax.worker.workloads.workload import Array, Parameter, Workload

_TICKS = 1 << 16
# A uniform distribution of width w has the standard deviation w / sqrt(12).
_WIDTH_PER_STD = math.sqrt(12.0)


def ticks(seed: int, key: str, count: int) -> npt.NDArray[np.uint16]:
    """Return `count` uniform 16-bit integers that depend only on seed and key."""
    # NumPy promises a stable stream for bit generators only, not for its distributions (NEP 19), and a normal
    # distribution goes through libm. Raw bits, 16 per number, keep the sha256 equal everywhere.
    digest = int.from_bytes(hashlib.sha256(key.encode()).digest()[:16], "little")
    generator = np.random.PCG64(np.random.SeedSequence([seed, digest]))
    words = generator.random_raw(-(-count // 4)).astype("<u8", copy=False)
    return words.view("<u2")[:count]


def integers(seed: int, key: str, count: int, low: int, high: int) -> npt.NDArray[np.int64]:
    """Return `count` integers of low <= x < high."""
    return low + (ticks(seed, key, count).astype(np.int64) * (high - low) >> 16)


def pixels(seed: int, count: int, height: int, width: int) -> npt.NDArray[np.float32]:
    """Return RGB images of uniform noise, in whole numbers 0..255."""
    noise = ticks(seed, "input:pixels", count * 3 * height * width) >> 8
    return noise.astype(np.float32).reshape(count, 3, height, width)


def parameter_values(parameter: Parameter, seed: int) -> npt.NDArray[np.float32]:
    """Return the parameter's seeded values in the transformers library's layout."""
    values = ticks(seed, parameter.name, parameter.size).astype(np.float32)
    values -= np.float32((_TICKS - 1) / 2)  # exact: 17 bits are enough
    values *= np.float32(parameter.std * _WIDTH_PER_STD / _TICKS)
    values += np.float32(parameter.mean)
    return values.reshape(parameter.shape)


def seeded_state(workload: Workload, seed: int) -> dict[str, Array]:
    """Return all parameters under the transformers library's names, ready for `load_state_dict`."""
    return {parameter.name: parameter_values(parameter, seed) for parameter in workload.parameters}
