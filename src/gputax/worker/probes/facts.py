"""All facts of a worker's environment, for `describe`, the results and the doctor."""

from __future__ import annotations

import importlib
from typing import Any

from gputax.worker.probes.host import host_facts, package_versions
from gputax.worker.probes.limits import cpu_allowance
from gputax.worker.probes.look import look
from gputax.worker.probes.nvidia import device_facts


def describe(*, with_engines: bool = False, listen_s: float = 0.0) -> dict[str, Any]:
    """Return the facts as JSON-able data.

    `with_engines` imports ONNX Runtime to ask for its providers (80 ms, 36 MB: not for a worker that may not
    need it); `listen_s` watches that long for steal and other processes.
    """
    facts = {
        "host": host_facts(),
        "devices": device_facts(),
        "cpu_allowance": cpu_allowance().to_dict(),
        "packages": package_versions(),
        "loadgen": _importable("mlperf_loadgen"),
    }
    if with_engines:
        facts["onnxruntime"] = _onnxruntime()
    if listen_s > 0:
        facts["noise"] = look(listen_s).to_dict()
    return facts


def _importable(module: str) -> dict[str, Any]:
    try:
        importlib.import_module(module)
    # A wheel for another libc or a broken install can raise almost anything here.
    except Exception as error:
        return {"importable": False, "why": f"{type(error).__name__}: {error}"}
    return {"importable": True, "why": None}


def _onnxruntime() -> dict[str, Any]:
    found = _importable("onnxruntime")
    if not found["importable"]:
        return {**found, "providers": [], "cuda_version": None}
    module = importlib.import_module("onnxruntime")
    return {
        **found,
        "providers": list(module.get_available_providers()),
        "cuda_version": getattr(module, "cuda_version", None) or None,
    }
