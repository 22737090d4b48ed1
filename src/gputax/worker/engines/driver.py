"""The engine `driver`: operations of the CUDA driver itself, on whatever `libcuda.so.1` the environment provides."""

from __future__ import annotations

from typing import Any

from gputax.errors import PreflightError, UsageError
from gputax.plan.driver import SOFTWARE_DEVICE_NAME
from gputax.plan.micro import OPERATIONS
from gputax.worker.engines.driver_context import DriverContext, bindings_version
from gputax.worker.engines.driver_operations import operation_run
from gputax.worker.engines.engine import EngineRequest, NoResponse, Samples
from gputax.worker.probes.driver_library import loaded_library

PROVIDER = "CUDA driver API"


class DriverEngine:
    """Runs one operation of `micro`; one sample is one operation."""

    def __init__(self, request: EngineRequest) -> None:
        if request.workload not in OPERATIONS:
            raise UsageError(
                f"the engine driver runs the workload micro, not {request.workload}", next_step="use --workload micro"
            )
        self._request = request
        self._operation = OPERATIONS[request.workload]
        self._context = DriverContext()
        try:
            name = self._context.facts.name
            self.device = verified_device(request.device, name)
            self._name = name if not request.libcuda else f"{name}, as {request.libcuda} names it"
            self._run, self._alive = operation_run(self._context, self._operation, request.seed)
        except BaseException:
            self._context.close()
            raise
        self._response = NoResponse(request.max_batch)
        self.response_address = self._response.address
        self.response_bytes = self._response.bytes_per_sample

    def facts(self) -> dict[str, Any]:
        """Return which driver and device answered, as they report it."""
        device = self._context.facts
        return {
            "engine": "driver",
            "engine_version": f"cuda-bindings {bindings_version()}",
            "provider": PROVIDER,
            "device_name": self._name,
            "device_memory_mb": device.memory_mb,
            "driver_version": device.driver_version,
            "library": loaded_library(),
            "operation": self._operation.title,
            "bytes_per_run": self._operation.bytes_per_run,
            "host_memory": "pageable",
            "options": dict(self._request.options),
            "threads": 1,
            "precision": "none",
        }

    def adapt_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return them unchanged: an operation has its own data."""
        return inputs

    def load_samples(self, samples: Samples) -> None:
        """Need none."""

    def run(self, first: int, count: int) -> None:
        """Do the operation `count` times; each returns when the device is done."""
        run = self._run
        if count == 1:
            run()
            return
        for _ in range(count):
            run()

    def close(self) -> None:
        """Release memory and context."""
        self._context.close()


def verified_device(wanted: str, name: str) -> str:
    """Return the device by its name in the driver; a device other than the requested one is an error."""
    found = "software" if name.startswith(SOFTWARE_DEVICE_NAME) else "cuda"
    if wanted in ("software", "cuda") and wanted != found:
        raise PreflightError(
            f"{wanted} was requested, but the driver's device is {name!r}",
            where="engine driver",
            next_step=f"use --device {found}, or check LD_LIBRARY_PATH and --libcuda",
        )
    if wanted == "cpu":
        raise PreflightError("the engine driver has no CPU device", next_step="use --device software")
    return found
