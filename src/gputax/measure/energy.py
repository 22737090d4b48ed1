"""The energy that a device counted while it was measured; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def energy_j(telemetry: Mapping[str, Any], begin_ns: int | None = None, end_ns: int | None = None) -> float | None:
    """Return the joules of the device in this time, by default of the whole load; None if it does not count them.

    It is the device's energy, whoever used it. Between two samples it is taken to grow evenly.
    """
    counted = telemetry.get("energy_j") or ()
    known = [
        (time, energy)
        for time, energy in zip(telemetry.get("time_ns") or (), counted, strict=False)
        if time is not None and energy is not None
    ]
    if len(known) < 2:
        return None
    times, energies = np.array(known, dtype=np.float64).T
    begin, end = (float(times[0]) if begin_ns is None else begin_ns), (float(times[-1]) if end_ns is None else end_ns)
    if begin < times[0] or end > times[-1]:
        return None
    used = float(np.interp(end, times, energies) - np.interp(begin, times, energies))
    # A driver that is loaded again starts its counter again.
    return used if used > 0.0 else None


def energy_of_device_j(telemetries: Sequence[Mapping[str, Any]], begin_ns: int, end_ns: int) -> float | None:
    """Return the joules of the device that tenants share: each of them reads the same counter, so one is enough."""
    found = (energy_j(series, begin_ns, end_ns) for series in telemetries)
    return next((energy for energy in found if energy is not None), None)
