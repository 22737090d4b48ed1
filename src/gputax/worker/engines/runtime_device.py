"""The device behind an engine on the CUDA runtime, read from the driver before the framework is asked for anything."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from gputax.errors import PreflightError
from gputax.plan.claims import NULL_KERNELS, computes_nothing
from gputax.worker.engines.driver import verified_device
from gputax.worker.engines.driver_context import NO_LIBRARY
from gputax.worker.probes.driver_library import SONAME, DeviceFacts, device_facts, library_of


@dataclass(frozen=True)
class RuntimeDevice:
    """Which driver and device the runtime of this process will find."""

    kind: str
    """`cuda` or `software`."""
    facts: DeviceFacts
    library: str | None

    @property
    def has_answers(self) -> bool:
        """Whether its kernels compute: outputs of null kernels are never compared, kept or shown to LoadGen."""
        return not computes_nothing(self.facts.name)

    def to_dict(self) -> dict[str, Any]:
        """Return what goes into an engine's facts."""
        return {
            "device_name": self.facts.name,
            "device_memory_mb": self.facts.memory_mb,
            "driver_version": self.facts.driver_version,
            "library": self.library,
            "kernel_answers": "compared" if self.has_answers else f"not compared: {NULL_KERNELS}",
        }


def open_runtime_device(engine: str, wanted: str) -> RuntimeDevice:
    """Ask the driver for its device; one that was not requested, or cannot run the engine's kernels, is an error."""
    try:
        driver = ctypes.CDLL(SONAME)
    except OSError as error:
        raise PreflightError(f"no {SONAME} can be used here: {error}", next_step=NO_LIBRARY) from error
    code = int(driver.cuInit(0))
    if code:
        raise PreflightError(
            f"the driver has no device: cuInit gives CUDA error {code}",
            where=library_of(driver) or SONAME,
            next_step=NO_LIBRARY,
        )
    facts = device_facts(driver)
    kind = verified_device(wanted, facts.name, engine)
    if kind == "software" and not computes_nothing(facts.name):
        raise PreflightError(
            f"the kernels of the engine {engine} are a GPU's machine code, which the software device cannot compute",
            where=f"engine {engine}",
            next_step="add --soft-kernels null to measure the control path alone (a proxy that runs already needs "
            "GPUTAX_SOFT_KERNELS=null itself), or use --engine tinygrad",
        )
    return RuntimeDevice(kind, facts, library_of(driver))
