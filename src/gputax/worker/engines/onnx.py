"""ONNX Runtime: explicit provider and threads, inputs bound in place, and the active provider read back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from gputax.errors import EngineError, PreflightError, UsageError
from gputax.plan.notices import Notice
from gputax.worker.engines.engine import EngineRequest, InFlight, NoResponse, Samples
from gputax.worker.engines.onnx_calls import SessionCalls
from gputax.worker.engines.onnx_runtime import import_onnxruntime
from gputax.worker.engines.onnx_session import active_provider, choose_device, open_session
from gputax.worker.engines.reference import Checked, as_dicts, checked_rows, tf32_of
from gputax.worker.workloads import load_workload
from gputax.worker.workloads.model_store import ModelFile
from gputax.worker.workloads.onnx_header import files_sha256
from gputax.worker.workloads.user_model import InputBinding, describe_user_model, refuse_foreign_network
from gputax.worker.workloads.workload import Workload

OFFICIAL = "official"
OWN = "own"


@dataclass(frozen=True)
class OnnxModel:
    """A file that matches the workload."""

    path: str
    sha256: str
    source: str
    """`seeded`, `official`, `file` for the user's weights of a built-in model, `own` for a model of the user's."""
    precision: str
    inputs: tuple[InputBinding, ...]
    fixed_batch: int | None
    notices: tuple[Notice, ...]
    batched: bool = True
    """Samples of one batch lie along axis 0 of the inputs; otherwise one sample is the whole of each input."""

    def adapt(self, samples: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Return the samples under the file's names, in its layout and type; done once, untimed."""
        return {binding.name: _adapted(samples[binding.source], binding) for binding in self.inputs}


def resolve_model(request: EngineRequest) -> OnnxModel:
    """Find, build or check the requested file."""
    if request.own.file:
        return _own(request)
    workload = load_workload(request.workload)
    if request.weights == OFFICIAL:
        model = _fetched(request.workload)
        return _bound(workload, model.path, model.sha256, OFFICIAL, _build_notices(model))
    if request.weights:
        path = Path(request.weights)
        refuse_foreign_network(path, workload)
        return _bound(workload, path, "", "file", ())
    from gputax.worker.workloads.weights import ensure

    model = ensure(workload, request.precision, request.seed)
    inputs = tuple(
        InputBinding(spec.name, spec.name, spec.dtype_in(request.precision), "NCHW" if len(spec.shape) == 3 else "")
        for spec in workload.inputs
    )
    return OnnxModel(str(model.path), model.sha256, "seeded", request.precision, inputs, None, _build_notices(model))


def _own(request: EngineRequest) -> OnnxModel:
    from gputax.worker.workloads.own_model import own_network

    network = own_network(request.own)
    inputs = tuple(InputBinding(each.name, each.name, each.dtype, "") for each in network.inputs)
    return OnnxModel(
        str(network.path), network.sha256, OWN, network.precision, inputs, network.fixed_batch, (), network.batched
    )


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
        sha256=sha256 or files_sha256(described.files),
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


class OnnxEngine:
    """Runs an ONNX file through one session."""

    def __init__(self, request: EngineRequest) -> None:
        ort = import_onnxruntime()
        self._ort = ort
        self._request = request
        chosen = choose_device(ort, request)
        self._found, self.device = chosen.found, chosen.kind
        self._copies = str(request.options["copies"])
        if self._copies == "excluded" and self.device == "cpu":
            raise UsageError("copies=excluded does not apply to a CPU, which copies nothing to a device")
        self._model = resolve_model(request)
        self._session = open_session(ort, request, chosen.provider, self._model.path, own=self._model.source == OWN)
        self._active = active_provider(ort, self._session, chosen.provider)
        self._bindings: dict[int, Any] = {}
        self._checked: dict[int, Checked] = {}
        self._values: dict[tuple[int, int], list[tuple[str, Any]]] = {}
        self._inputs: dict[str, npt.NDArray[Any]] = {}
        self._outputs = self._output_arrays(request.max_batch)
        self.response_address, self.response_bytes = self._response()

    def facts(self) -> dict[str, Any]:
        """Return what was actually loaded."""
        return {
            "engine": "onnx",
            "engine_version": self._ort.__version__,
            "provider": self._active,
            "providers": self._session.get_providers(),
            "threads": self._request.threads,
            "precision": self._model.precision,
            "copies": "none: the inputs lie in host memory" if self.device == "cpu" else self._copies,
            "spin": bool(self._request.options["spin"]),
            "options": dict(self._request.options),
            "weights": self._model.source,
            "weights_sha256": self._model.sha256,
            "notices": [notice.to_dict() for notice in self._model.notices],
            **(self._found.to_dict() if self._found else {}),
            **({"answers": as_dicts(self._checked)} if self._checked else {}),
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
        binding = self._bindings.get(count) or self._first_binding(first, count)
        for name, value in self._values.get((first, count)) or self._input_values(first, count):
            binding.bind_ortvalue_input(name, value)
        self._session.run_with_iobinding(binding)
        if self._copies == "excluded":
            binding.synchronize_outputs()

    def answers(self, count: int) -> dict[str, npt.NDArray[Any]]:
        """Return the outputs of the last run of `count` samples, by the file's names."""
        if self._found and not self._found.has_answers:
            raise UsageError(
                "null kernels compute nothing: their outputs are never answers",
                next_step="measure accuracy on a device that computes, e.g. --device cpu",
            )
        names = [output.name for output in self._session.get_outputs()]
        return dict(zip(names, self._bindings[count].copy_outputs_to_cpu(), strict=True))

    def in_flight(self, depth: int) -> InFlight:
        """Return overlapping runs: a session takes calls of several threads, each with outputs of its own."""
        return SessionCalls(self._session, self._bind_lane, depth)

    def _bind_lane(self, first: int, count: int) -> Any:
        """Return a binding of these rows whose outputs nobody else writes."""
        binding = self._session.io_binding()
        for name, value in self._values.get((first, count)) or self._input_values(first, count):
            binding.bind_ortvalue_input(name, value)
        for output in self._session.get_outputs():
            binding.bind_output(output.name, "cuda" if self._copies == "excluded" else "cpu", 0)
        return binding

    def close(self) -> None:
        """Drop the session and its device memory."""
        self._bindings.clear()
        self._values.clear()
        self._session = None

    def _input_values(self, first: int, count: int) -> list[tuple[str, Any]]:
        device = "cuda" if self._copies == "excluded" else "cpu"
        from_numpy = self._ort.OrtValue.ortvalue_from_numpy
        rows = slice(first, first + count) if self._model.batched else (first, ...)
        values = [(name, from_numpy(area[rows], device, 0)) for name, area in self._inputs.items()]
        # Gathered rows change under their address: on a separate device they must be copied each time.
        held = len(next(iter(self._inputs.values())))
        if device == "cpu" or first < held - self._request.max_batch:
            self._values[(first, count)] = values
        return values

    def _first_binding(self, first: int, count: int) -> Any:
        """Bind the outputs of a batch size; the answers of a device that computes are checked before it is used."""
        refuse_another_batch(self._model, count)
        binding = self._bindings[count] = self._bind_outputs(count)
        if self._found and self._found.has_answers:
            self.run(first, count)
            got = {
                output.name: values
                for output, values in zip(self._session.get_outputs(), binding.copy_outputs_to_cpu(), strict=True)
            }
            feeds = {name: area[first : first + count] for name, area in self._inputs.items()}
            self._checked[count] = checked_rows(
                "onnx", self._model.path, got, feeds, tf32_of(self._model.precision), self._request.threads,
                whole=self._model.fixed_batch is not None,
            )  # fmt: skip
        return binding

    def _bind_outputs(self, count: int) -> Any:
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
        return binding

    def _output_arrays(self, max_batch: int) -> dict[str, npt.NDArray[Any]]:
        """Allocate outputs once, if the file gives their sizes; ONNX Runtime allocates the others per run."""
        arrays = {}
        batch = self._session.get_inputs()[0].shape[:1] if self._model.source == OWN else None
        for output in self._session.get_outputs():
            rest = output.shape[1:]
            # An output of an unknown network has the batch axis if it bears the inputs' name for it.
            if batch is not None and (not self._model.batched or output.shape[:1] != batch or batch == [None]):
                continue
            if output.type in ("tensor(float)", "tensor(float16)") and all(isinstance(size, int) for size in rest):
                dtype = np.float32 if output.type == "tensor(float)" else np.float16
                arrays[output.name] = np.zeros((max_batch, *rest), dtype=dtype)
        return arrays

    def _response(self) -> tuple[int, int]:
        if self._found is None or self._found.has_answers:
            for array in self._outputs.values():
                return int(array.ctypes.data), int(array[0].nbytes)
        self._no_response = NoResponse(self._request.max_batch)
        return self._no_response.address, self._no_response.bytes_per_sample
