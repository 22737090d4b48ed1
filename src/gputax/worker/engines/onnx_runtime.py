"""The package ONNX Runtime: its import, which of its providers is used, and why one gave way to the CPU."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from gputax.errors import PreflightError, UsageError

PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}
INSTALL_CUDA = (
    "pip install 'gputax[cuda]' on a machine with an NVIDIA driver (an image: docker build --target cuda), "
    "or use --device cpu"
)
# The libraries of a provider, in the order in which ONNX Runtime loads them.
LIBRARIES = ("libonnxruntime_providers_shared.so", "libonnxruntime_providers_{}.so")


def import_onnxruntime() -> Any:
    """Import ONNX Runtime, or raise with how to install it."""
    try:
        import onnxruntime
    except ImportError as error:
        raise PreflightError(
            f"ONNX Runtime cannot be imported: {error}",
            next_step="pip install 'gputax[cpu]' or 'gputax[cuda]'",
        ) from error
    return onnxruntime


def choose_provider(provider: str, device: str, available: list[str]) -> str:
    """Return `cpu`, `cuda` or `tensorrt`; an explicit choice is used or refused, never replaced."""
    wanted = provider if provider != "auto" else {"cpu": "cpu", "cuda": "cuda", "software": "cuda"}.get(device, "auto")
    if (device == "cpu" and wanted != "cpu") or (device in ("cuda", "software") and wanted == "cpu"):
        raise UsageError(f"--device {device} and provider={provider} contradict each other")
    if wanted == "auto":
        return "cuda" if PROVIDERS["cuda"] in available else "cpu"
    if PROVIDERS[wanted] not in available:
        raise PreflightError(
            f"{wanted} was requested, but this ONNX Runtime has only {', '.join(available)}",
            where="engine onnx",
            next_step=INSTALL_CUDA,
        )
    return wanted


def verified_provider(wanted: str, active: list[str], why: str = "") -> str:
    """Return the provider in force; a fallback to another one after loading is an error."""
    if not active or active[0] != PROVIDERS[wanted]:
        reason = f": {why}" if why else ""
        raise PreflightError(
            f"{wanted} was requested, but after loading the session runs on {', '.join(active) or 'nothing'}{reason}",
            where="engine onnx",
            next_step="check the driver and the CUDA and cuDNN libraries with `gputax doctor`",
        )
    return active[0]


def why_not_loaded(ort: Any, provider: str) -> str:
    """Return what the loader says of a provider's library, such as the symbol that it misses; empty if it loads.

    ONNX Runtime goes on with the CPU without an error, so the library is loaded again to get the reason.
    """
    folder = Path(ort.__file__).parent / "capi"
    for name in LIBRARIES:
        path = folder / name.format(provider)
        try:
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            return f"{path.name}: {str(error).removeprefix(f'{path}: ')}"
    return ""
