"""ONNX Runtime: explicit provider and threads, inputs bound in place, and the active provider read back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from gputax.errors import EngineError, PreflightError, UsageError
from gputax.plan.notices import Notice
from gputax.worker.engines.engine import EngineRequest, NoResponse, Samples
from gputax.worker.workloads import load_workload
from gputax.worker.workloads.model_store import ModelFile
from gputax.worker.workloads.user_model import InputBinding, describe_user_model, user_model_sha256
from gputax.worker.workloads.workload import Workload

OFFICIAL = "official"


@dataclass(frozen=True)
class OnnxModel:
    """A file that matches the workload."""

    path: str
    sha256: str
    source: str
    """`seeded`, `official`, or `file` for the user's own."""
    precision: str
    inputs: tuple[InputBinding, ...]
    fixed_batch: int | None
    notices: tuple[Notice, ...]

    def adapt(self, samples: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Return the samples under the file's names, in its layout and type; done once, untimed."""
        return {binding.name: _adapted(samples[binding.source], binding) for binding in self.inputs}


def resolve_model(request: EngineRequest) -> OnnxModel:
    """Find, build or check the requested file."""
    workload = load_workload(request.workload)
    if request.weights == OFFICIAL:
        model = _fetched(request.workload)
        return _bound(workload, model.path, model.sha256, OFFICIAL, _build_notices(model))
    if request.weights:
        path = Path(request.weights)
        return _bound(workload, path, "", "file", ())
    from gputax.worker.workloads.weights import ensure

    model = ensure(workload, request.precision, request.seed)
    inputs = tuple(
        InputBinding(spec.name, spec.name, spec.dtype_in(request.precision), "NCHW" if len(spec.shape) == 3 else "")
        for spec in workload.inputs
    )
    return OnnxModel(str(model.path), model.sha256, "seeded", request.precision, inputs, None, _build_notices(model))


def _fetched(workload: str) -> ModelFile:
    """Return the official file that was fetched before; a measurement never downloads."""
    from gputax.worker.workloads.fetch import OFFICIAL as OFFICIAL_FILES
    from gputax.worker.workloads.fetch import fetch, fetch_file

    if workload not in OFFICIAL_FILES:
        return fetch(workload)  # raises: there is none

    def refuse(url: str) -> NoReturn:
        raise PreflightError(
            f"the official file of {workload} has not been fetched", next_step=f"run gputax models fetch {workload}"
        )

    return fetch_file(OFFICIAL_FILES[workload], refuse)


def _bound(workload: Workload, path: Path, sha256: str, source: str, notices: tuple[Notice, ...]) -> OnnxModel:
    described = describe_user_model(path, workload)
    types = [each.dtype for each in described.inputs] + [each.dtype for each in described.outputs]
    return OnnxModel(
        path=str(path),
        sha256=sha256 or user_model_sha256(described),
        source=source,
        precision="fp16" if "float16" in types else "fp32",
        inputs=described.inputs,
        fixed_batch=described.fixed_batch,
        notices=(*notices, *(Notice("weights", note) for note in described.notes)),
    )


def _build_notices(model: ModelFile) -> tuple[Notice, ...]:
    return tuple(Notice("weights", note) for note in model.notes)


def _adapted(values: npt.NDArray[Any], binding: InputBinding) -> npt.NDArray[Any]:
    if binding.layout == "NHWC":
        values = values.transpose(0, 2, 3, 1)
    try:
        return np.ascontiguousarray(values, dtype=binding.dtype)
    except TypeError as error:
        raise PreflightError(f"samples cannot be converted to {binding.dtype}", where=binding.name) from error


def refuse_another_batch(model: OnnxModel, count: int) -> None:
    """Raise if the file has a fixed batch axis of another size."""
    fixed = model.fixed_batch
    if fixed is not None and count != fixed:
        raise EngineError(
            f"the model's batch axis is fixed at {fixed}, so a batch of {count} cannot run",
            where=model.path,
            next_step=f"use --scenario offline --batch {fixed}, or a file with a dynamic batch axis",
        )


PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}
INSTALL_CUDA = (
    "pip install 'gputax[cuda]' on a machine with an NVIDIA driver (an image: docker build --target cuda), "
    "or use --device cpu"
)


class OnnxEngine:
    """Runs an ONNX file through one session."""

    def __init__(self, request: EngineRequest) -> None:
        ort = import_onnxruntime()
        self._ort = ort
        self._request = request
        provider = choose_provider(str(request.options["provider"]), request.device, ort.get_available_providers())
        self.device = "cpu" if provider == "cpu" else "cuda"
        if request.precision == "fp16" and self.device == "cpu":
            raise PreflightError(
                "fp16 on a CPU is emulated by ONNX Runtime and would measure the emulation",
                next_step="use --precision fp32, or a CUDA device",
            )
        self._copies = str(request.options["copies"])
        if self._copies == "excluded" and self.device == "cpu":
            raise UsageError("copies=excluded does not apply to a CPU, which copies nothing to a device")
        self._model = resolve_model(request)
        self._session = self._open(provider)
        self._active = verified_provider(provider, self._session.get_providers())
        self._bindings: dict[int, Any] = {}
        self._values: dict[tuple[int, int], list[tuple[str, Any]]] = {}
        self._inputs: dict[str, npt.NDArray[Any]] = {}
        self._outputs = self._output_arrays(request.max_batch)
        self.response_address, self.response_bytes = self._response()

    def _open(self, provider: str) -> Any:
        ort, request = self._ort, self._request
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
            return ort.InferenceSession(self._model.path, options, providers=names)
        except Exception as error:
            raise PreflightError(
                f"ONNX Runtime cannot load the model: {error}",
                where=self._model.path,
                next_step="check the file with `gputax models list`, or pass another with --weights",
            ) from error

    def facts(self) -> dict[str, Any]:
        """Return what was actually loaded."""
        return {
            "engine": "onnx",
            "engine_version": self._ort.__version__,
            "provider": self._active,
            "providers": self._session.get_providers(),
            "threads": self._request.threads,
            "precision": self._model.precision,
            "copies": self._copies if self.device == "cuda" else "none: the inputs lie in host memory",
            "spin": bool(self._request.options["spin"]),
            "options": dict(self._request.options),
            "weights": self._model.source,
            "weights_sha256": self._model.sha256,
            "notices": [notice.to_dict() for notice in self._model.notices],
        }

    def adapt_inputs(self, inputs: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Convert the samples to the names, layout and type of this file."""
        return self._model.adapt(inputs)

    def load_samples(self, samples: Samples) -> None:
        """Keep the arrays; values are bound to their memory, without a copy on the CPU."""
        self._inputs = dict(samples)
        self._values.clear()

    def run(self, first: int, count: int) -> None:
        """Execute one batch; returns when its outputs are ready."""
        binding = self._bindings.get(count) or self._bind_outputs(count)
        for name, value in self._values.get((first, count)) or self._input_values(first, count):
            binding.bind_ortvalue_input(name, value)
        self._session.run_with_iobinding(binding)
        if self._copies == "excluded":
            binding.synchronize_outputs()

    def close(self) -> None:
        """Drop the session and its device memory."""
        self._bindings.clear()
        self._values.clear()
        self._session = None

    def _input_values(self, first: int, count: int) -> list[tuple[str, Any]]:
        device = "cuda" if self._copies == "excluded" else "cpu"
        from_numpy = self._ort.OrtValue.ortvalue_from_numpy
        values = [(name, from_numpy(area[first : first + count], device, 0)) for name, area in self._inputs.items()]
        # Gathered rows change under their address: on a separate device they must be copied each time.
        rows = len(next(iter(self._inputs.values())))
        if device == "cpu" or first < rows - self._request.max_batch:
            self._values[(first, count)] = values
        return values

    def _bind_outputs(self, count: int) -> Any:
        refuse_another_batch(self._model, count)
        binding = self._session.io_binding()
        for output in self._session.get_outputs():
            array = self._outputs.get(output.name)
            if self._copies == "excluded":
                binding.bind_output(output.name, "cuda", 0)
            elif array is None:
                binding.bind_output(output.name, "cpu")
            else:
                value = self._ort.OrtValue.ortvalue_from_numpy(array[:count])
                binding.bind_ortvalue_output(output.name, value)
        self._bindings[count] = binding
        return binding

    def _output_arrays(self, max_batch: int) -> dict[str, npt.NDArray[Any]]:
        """Allocate outputs once, if the file gives their sizes; ONNX Runtime allocates the others per run."""
        arrays = {}
        for output in self._session.get_outputs():
            rest = output.shape[1:]
            if output.type in ("tensor(float)", "tensor(float16)") and all(isinstance(size, int) for size in rest):
                dtype = np.float32 if output.type == "tensor(float)" else np.float16
                arrays[output.name] = np.zeros((max_batch, *rest), dtype=dtype)
        return arrays

    def _response(self) -> tuple[int, int]:
        for array in self._outputs.values():
            return int(array.ctypes.data), int(array[0].nbytes)
        self._no_response = NoResponse(self._request.max_batch)
        return self._no_response.address, self._no_response.bytes_per_sample


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
    if device == "software":
        raise UsageError("ONNX Runtime needs the CUDA runtime, which the software device does not have")
    wanted = provider if provider != "auto" else {"cpu": "cpu", "cuda": "cuda"}.get(device, "auto")
    if (device == "cpu" and wanted != "cpu") or (device == "cuda" and wanted == "cpu"):
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


def verified_provider(wanted: str, active: list[str]) -> str:
    """Return the provider in force; a fallback to another one after loading is an error."""
    if not active or active[0] != PROVIDERS[wanted]:
        raise PreflightError(
            f"{wanted} was requested, but after loading the session runs on {', '.join(active) or 'nothing'}",
            where="engine onnx",
            next_step="check the driver and the CUDA and cuDNN libraries with `gputax doctor`",
        )
    return active[0]
