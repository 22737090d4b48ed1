"""A session of ONNX Runtime: the device it may use, its options, and the provider that is really active."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gputax.errors import PreflightError
from gputax.worker.engines.engine import EngineRequest
from gputax.worker.engines.onnx_runtime import PROVIDERS, choose_provider, verified_provider, why_not_loaded
from gputax.worker.engines.runtime_device import RuntimeDevice, open_runtime_device


@dataclass(frozen=True)
class ChosenDevice:
    """The provider to load, and the device that its driver names; None on the CPU."""

    provider: str
    found: RuntimeDevice | None

    @property
    def kind(self) -> str:
        """`cpu`, `cuda` or `software`."""
        return self.found.kind if self.found else "cpu"


def choose_device(ort: Any, request: EngineRequest) -> ChosenDevice:
    """Return what the request asks for, or raise if it cannot be had."""
    # Somebody who chose a driver means its device.
    device = "cuda" if request.libcuda and request.device == "auto" else request.device
    provider = choose_provider(str(request.options["provider"]), device, ort.get_available_providers())
    chosen = ChosenDevice(provider, None if provider == "cpu" else open_runtime_device("onnx", request.device))
    if request.precision == "fp16" and chosen.kind == "cpu":
        raise PreflightError(
            "fp16 on a CPU is emulated by ONNX Runtime and would measure the emulation",
            next_step="use --precision fp32, or a CUDA device",
        )
    return chosen


def open_session(ort: Any, request: EngineRequest, provider: str, path: str, *, own: bool = False) -> Any:
    """Open the file with exactly this provider."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = request.threads  # its own default counts the host's cores, not the quota
    options.inter_op_num_threads = int(request.options["inter_op"])
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    # A memory pattern is kept for each batch size seen; a server sees all of them.
    options.enable_mem_pattern = False
    spinning = "1" if request.options["spin"] else "0"
    options.add_session_config_entry("session.intra_op.allow_spinning", spinning)
    options.add_session_config_entry("session.inter_op.allow_spinning", spinning)
    options.log_severity_level = 3
    if provider != "cpu" and hasattr(ort, "preload_dlls"):
        ort.preload_dlls()  # CUDA and cuDNN may be Python packages, which the loader does not search
    # Exactly the requested one: with a list of alternatives ONNX Runtime would silently fall back to the next.
    # TensorRT passes operations it does not support to CUDA, on the same device.
    names = [PROVIDERS[provider]] + ([PROVIDERS["cuda"]] if provider == "tensorrt" else [])
    try:
        return ort.InferenceSession(path, options, providers=names)
    except Exception as error:
        raise PreflightError(
            f"ONNX Runtime cannot load the model: {error}",
            where=path,
            next_step="check it with `python -m onnx.checker FILE`"
            if own
            else "check the file with `gputax models list`, or pass another with --weights",
        ) from error


def active_provider(ort: Any, session: Any, provider: str) -> str:
    """Return the provider in force; a fallback to another one is an error."""
    active = session.get_providers()
    fell_back = PROVIDERS[provider] not in active[:1]
    return verified_provider(provider, active, why_not_loaded(ort, provider) if fell_back else "")
