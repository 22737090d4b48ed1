"""Joules from the device's own counter: of a load, of a window, of several tenants; never invented."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gputax.measure.energy import energy_j, energy_of_device_j
from gputax.worker.probes.nvidia import NvmlSampler
from gputax.worker.probes.telemetry import Telemetry
from tests.standins.nvml import FakeNvml
from tests.standins.nvml import nvml as nvml

S = 1_000_000_000


def series(*energies: float | None, times_s: Sequence[float] = ()) -> dict[str, Any]:
    times = times_s or range(len(energies))
    return {"time_ns": [int(time * S) for time in times], "energy_j": list(energies)}


def test_a_load_has_the_growth_of_the_counter() -> None:
    assert energy_j(series(0.0, 100.0, 250.0)) == 250.0
    assert energy_j(series(0.0, None, 250.0)) == 250.0


def test_a_window_has_its_part_of_it() -> None:
    assert energy_j(series(0.0, 100.0, 250.0), int(0.5 * S), int(1.5 * S)) == pytest.approx(125.0)


@pytest.mark.parametrize(
    "telemetry", [{}, series(), series(5.0), series(None, None), series(0.0, 0.0), {"time_ns": [1, 2]}]
)
def test_a_device_that_counts_nothing_has_no_energy(telemetry: dict[str, Any]) -> None:
    assert energy_j(telemetry) is None


def test_a_window_beyond_the_samples_is_not_guessed() -> None:
    assert energy_j(series(0.0, 100.0), 0, 2 * S) is None


def test_tenants_of_one_device_read_one_counter() -> None:
    same = series(0.0, 100.0, 200.0)
    assert energy_of_device_j([series(None, None), same, same], 0, 2 * S) == 200.0
    assert energy_of_device_j([series(None, None)], 0, S) is None


def sampled(nvml: FakeNvml) -> dict[str, Any]:
    sampler = NvmlSampler.open()
    assert isinstance(sampler, NvmlSampler)
    telemetry = Telemetry(nvml=sampler, interval_s=60.0)
    telemetry.start()
    nvml.answers["nvmlDeviceGetTotalEnergyConsumption"] += 42_000
    return telemetry.stop()


def test_the_counter_of_a_gpu_is_read_through_nvml(nvml: FakeNvml) -> None:
    assert energy_j(sampled(nvml)) == pytest.approx(42.0)


def test_a_gpu_that_does_not_count_has_none(nvml: FakeNvml) -> None:
    nvml.fail["nvmlDeviceGetTotalEnergyConsumption"] = 3
    assert energy_j(sampled(nvml)) is None
