"""tinygrad: the workload's ONNX file compiled to PTX, run through the CUDA driver API alone, directly or by a proxy."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax.errors import EngineError, GputaxError, PreflightError, UsageError
from gputax.plan.claims import NULL_KERNELS, computes_nothing
from gputax.plan.notices import Notice
from gputax.worker.engines.driver import verified_device
from gputax.worker.engines.engine import EngineRequest, NoResponse, Samples
from gputax.worker.engines.onnx import refuse_another_batch, resolve_model
from gputax.worker.engines.reference import (
    IN_FULL,
    Checked,
    as_dicts,
    largest_difference,
    reference_answers,
    reference_name,
)
from gputax.worker.engines.tinygrad_captures import CaptureKey, Proof, ProofKey, own_captures, packed, unpacked
from gputax.worker.engines.tinygrad_package import RENDERER, ModelFile, only_these, open_package
from gputax.worker.engines.tinygrad_weights import OUT_OF_MEMORY, load_weights
from gputax.worker.probes.driver_library import driver_facts
from gputax.worker.workloads.model_store import file_sha256

SOFTWARE_SETTINGS = "GPUTAX_SOFT_"
KEPT = "compared with kept answers of ONNX Runtime for the same capture, weights, driver, device and inputs"


@dataclass(frozen=True)
class Captured:
    """One batch size: the captured run, its inputs and outputs on the device, and the check of its answers."""

    jit: Any
    inputs: tuple[Any, ...]
    outputs: dict[str, Any]
    kernels: int
    launches: int
    from_cache: bool
    checked: Checked


class TinygradEngine:
    """Runs an ONNX file; its weights stay on the device, and each batch size is captured once."""

    def __init__(self, request: EngineRequest) -> None:
        if request.device == "cpu":
            raise UsageError(
                "the engine tinygrad runs on the CUDA driver API and has no CPU device",
                next_step="use --device software or cuda, or --engine onnx on the CPU",
            )
        self._request = request
        self._package, self._variables = open_package()
        self.device = verified_device(request.device, self._package.device_name, "tinygrad")
        if computes_nothing(self._package.device_name):
            raise PreflightError(
                f"the engine tinygrad checks its answers first, and a device with {NULL_KERNELS} has none",
                where="engine tinygrad",
                next_step="drop --soft-kernels null, or use --workload micro, or --engine onnx with --cuda-runtime",
            )
        if request.precision == "fp16" and self.device == "software":
            raise PreflightError("the software device has no fp16 arithmetic", next_step="use --precision fp32")
        self._copies = str(request.options["copies"])
        self._model = resolve_model(request)
        if not self._model.batched:
            raise PreflightError(
                "the engine tinygrad runs models with a batch axis: axis 0 free, or 1, in every input",
                where=self._model.path,
                next_step="use --engine onnx, or export the model with a batch axis",
            )
        self._store = own_captures()
        self._notices = list(self._model.notices)
        self._captured: dict[int, Captured] = {}
        self._file: ModelFile | None = None
        self._resident: dict[tuple[int, int], tuple[Any, ...]] = {}
        self._samples: Samples = {}
        with only_these(self._variables), self._usage("loading the weights"):
            self._weights = load_weights(self._model.path)
        self._host_outputs: dict[str, npt.NDArray[Any]] = {}
        self._no_response = NoResponse(request.max_batch)
        self.response_address = self._no_response.address
        self.response_bytes = self._no_response.bytes_per_sample

    def facts(self) -> dict[str, Any]:
        """Return what was actually loaded, and what one run of each captured batch size consists of."""
        package = self._package
        return {
            "engine": "tinygrad",
            "engine_version": package.version,
            "provider": f"tinygrad {RENDERER}",
            "renderer": f"{RENDERER}, {package.device.arch}",
            "device_name": package.device_name,
            "device_memory_mb": package.device_memory_mb,
            "driver_version": package.driver_version,
            "library": package.library,
            "cuda_graphs": package.graphs,
            "threads": 1,
            "precision": self._model.precision,
            "copies": self._copies,
            "options": dict(self._request.options),
            "weights": self._model.source,
            "weights_sha256": self._model.sha256,
            "captures": {
                str(batch): {
                    "kernels": each.kernels,
                    "launches": each.launches,
                    "difference_to_onnxruntime": each.checked.difference,
                }
                for batch, each in self._captured.items()
            },
            "kept_captures": sorted(batch for batch, each in self._captured.items() if each.from_cache),
            "answers": as_dicts({batch: each.checked for batch, each in self._captured.items()}),
            "notices": [notice.to_dict() for notice in self._notices],
        }

    def adapt_inputs(self, inputs: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Convert the samples to the names, layout and type of this file."""
        return self._model.adapt(inputs)

    def load_samples(self, samples: Samples) -> None:
        """Keep the arrays, and capture and check the largest batch, which at least one load uses."""
        self._samples = samples
        self._resident.clear()
        rows = len(next(iter(samples.values())))
        self._gather_start = rows - self._request.max_batch
        if not self._captured:
            batch = self._model.fixed_batch or self._request.max_batch
            self._capture(0, min(batch, self._gather_start))

    def run(self, first: int, count: int) -> None:
        """Execute one batch; returns when its outputs are in host memory, or on the device with copies excluded."""
        captured = self._captured.get(count) or self._capture(first, count)
        with self._usage("the run"):
            if self._copies == "included":
                self._copy_in(captured.inputs, first, count)
                captured.jit(*captured.inputs)
                self._copy_out(captured, count)
            else:
                captured.jit(*self._on_device(first, count))
                self._package.device.synchronize()

    def close(self) -> None:
        """Free everything that this engine has on the device; the device itself stays open until the process ends."""
        self._captured.clear()
        self._resident.clear()
        self._weights.buffers.clear()
        if self._file is not None:
            self._file.close()
        try:
            self._package.device.synchronize()
            self._package.device.allocator.free_cache()
        except RuntimeError:
            pass  # a driver that is gone has already freed it

    def _capture(self, first: int, count: int) -> Captured:
        """Take the run of this batch size from the cache, or capture it; its answers are checked before it is used."""
        refuse_another_batch(self._model, count)
        with only_these(self._variables), self._usage(f"capturing batch {count}"):
            inputs = self._tensors(first, count)
            jit, payload = self._captured_run(inputs, count)
            outputs = dict(zip(self._weights.outputs, jit(*inputs), strict=True))
            got = {name: tensor.numpy() for name, tensor in outputs.items()}
        from_cache = payload is not None
        key = self._key(inputs, count)
        if payload is None:
            jit.captured.free_intermediates()  # their contents are of no use to another process
            payload = packed(jit, self._weights.buffers)
        feeds = {name: values[first : first + count] for name, values in self._samples.items()}
        checked = self._checked(got, feeds, self._proof_key(key, payload, feeds))
        if not from_cache:
            self._store.write(key, payload)
        launches, kernels = _counts(jit)
        captured = self._captured[count] = Captured(jit, inputs, outputs, kernels, launches, from_cache, checked)
        self._keep_outputs(got)
        return captured

    def _checked(
        self, got: Mapping[str, npt.NDArray[Any]], feeds: Mapping[str, npt.NDArray[Any]], key: ProofKey
    ) -> Checked:
        """Compare what the device computed, with kept reference answers if there are any; raise if it is wrong."""
        payload, fault = self._store.read(key)
        proof = None if payload is None else Proof.of(payload)
        if proof is not None and proof.expected.keys() == got.keys():
            difference = largest_difference(got, proof.expected, self._model.precision, "tinygrad")
            return Checked(KEPT, proof.by, difference)
        if fault:
            self._notices.append(Notice("capture", f"{fault}; the answers are compared in full again"))
        expected = reference_answers(self._model.path, feeds, self._request.threads)
        difference = largest_difference(got, expected, self._model.precision, "tinygrad")
        self._store.write(key, Proof(expected, reference_name()).payload())
        return Checked(IN_FULL, reference_name(), difference)

    def _proof_key(self, capture: CaptureKey, payload: bytes, feeds: Mapping[str, npt.NDArray[Any]]) -> ProofKey:
        backend = Path(str((driver_facts()["vgpu"] or {}).get("backend") or ""))
        samples = hashlib.sha256()
        for name in sorted(feeds):
            samples.update(np.ascontiguousarray(feeds[name]).data)
        settings = {name: value for name, value in self._variables.items() if name.startswith(SOFTWARE_SETTINGS)}
        return ProofKey(
            capture,
            hashlib.sha256(payload).hexdigest(),
            file_sha256(Path(self._package.library)),
            file_sha256(backend) if backend.is_file() and os.access(backend, os.R_OK) else "",
            self._package.device_name,
            self._package.driver_version,
            tuple(sorted(settings.items())),
            samples.hexdigest(),
        )

    def _captured_run(self, inputs: tuple[Any, ...], count: int) -> tuple[Any, bytes | None]:
        """Return the run, and its bytes if it comes from the cache; another is captured by its first call."""
        kept, payload = self._kept(self._key(inputs, count))
        return (kept, payload) if kept is not None else (self._uncaptured(inputs), None)

    def _kept(self, key: CaptureKey) -> tuple[Any, bytes | None]:
        """Return the run from the cache and its bytes, None if there is none that can be used."""
        payload, fault = self._store.read(key)
        if payload is not None:
            try:
                return unpacked(payload, self._weights.buffers), payload
            except MemoryError:
                raise
            except Exception as error:
                fault = f"{key.name} cannot be used ({type(error).__name__}: {error})"
        if fault:
            self._notices.append(Notice("capture", f"{fault}; captured again"))
        return None, None

    def _uncaptured(self, inputs: tuple[Any, ...]) -> Any:
        """Return a run whose first call captures it."""
        self._file = self._file or ModelFile(self._model.path)
        runner = self._package.runner(self._file.path)
        runner.graph_values |= self._weights.tensors()
        runner._python_const_cache |= self._weights.constants
        for value in runner.graph_values.values():
            if isinstance(value, self._package.tensor):
                value.realize()  # shapes and other integers, which each run would otherwise read from the file
        names = self._weights.inputs

        def forward(*tensors: Any) -> tuple[Any, ...]:
            outputs = runner(dict(zip(names, tensors, strict=True)))
            return tuple(outputs[name].contiguous() for name in self._weights.outputs)

        # This only builds the graph: shapes and constants are worked out here and kept by the runner, so that the
        # capture, which runs the model once, contains nothing else.
        forward(*inputs)
        jit = self._package.jit(forward)
        jit.cnt = 1
        return jit

    def _key(self, inputs: tuple[Any, ...], count: int) -> CaptureKey:
        package = self._package
        described = tuple(
            (name, str(tensor.dtype), tuple(tensor.shape))
            for name, tensor in zip(self._weights.inputs, inputs, strict=True)
        )
        return CaptureKey(
            self._model.sha256, count, package.device.arch, RENDERER, package.version, package.graphs, described
        )

    def _tensors(self, first: int, count: int) -> tuple[Any, ...]:
        """Return tensors on the device with these rows, in the order of the file's inputs."""
        return tuple(
            self._package.tensor(np.ascontiguousarray(self._samples[name][first : first + count])).realize()
            for name in self._weights.inputs
        )

    def _on_device(self, first: int, count: int) -> tuple[Any, ...]:
        """Return rows that were copied before, or copy them; gathered rows change under their address."""
        gathered = first >= self._gather_start
        tensors = None if gathered else self._resident.get((first, count))
        if tensors is None:
            tensors = self._tensors(first, count)
            if not gathered:
                self._resident[(first, count)] = tensors
        return tensors

    def _copy_in(self, tensors: tuple[Any, ...], first: int, count: int) -> None:
        copy = self._package.device.allocator._copyin
        for name, tensor in zip(self._weights.inputs, tensors, strict=True):
            rows = self._samples[name][first : first + count]
            copy(tensor.uop.base.realized._buf, rows.data.cast("B"))

    def _copy_out(self, captured: Captured, count: int) -> None:
        copy = self._package.device.allocator._copyout  # synchronises first
        for name, tensor in captured.outputs.items():
            copy(self._host_outputs[name][:count].data.cast("B"), tensor.uop.base.realized._buf)

    def _keep_outputs(self, got: Mapping[str, npt.NDArray[Any]]) -> None:
        """Allocate the outputs of the largest batch once, and show LoadGen the first."""
        if self._host_outputs:
            return
        rows = self._request.max_batch
        self._host_outputs = {name: np.zeros((rows, *each.shape[1:]), dtype=each.dtype) for name, each in got.items()}
        response = next(iter(self._host_outputs.values()))
        self.response_address, self.response_bytes = int(response.ctypes.data), int(response[0].nbytes)

    @contextmanager
    def _usage(self, what: str) -> Iterator[None]:
        """Turn tinygrad's own errors into ours."""
        try:
            yield
        except GputaxError:
            raise
        except MemoryError as error:
            raise EngineError(
                f"CUDA out of memory in {what}: {error}", where="engine tinygrad", next_step=OUT_OF_MEMORY
            ) from error
        except (FileNotFoundError, NotImplementedError, RuntimeError) as error:
            raise EngineError(f"{what}: {error}", where="engine tinygrad", next_step=_next_step(str(error))) from error


def _counts(jit: Any) -> tuple[int, int]:
    """Return the launches of one run, and its kernels: a graph is one launch of many."""
    bodies = [call.src[0] for call in jit.captured.linear.src]
    graphs = [body for body in bodies if body.op.name == "CUSTOM_FUNCTION"]
    return len(bodies), len(bodies) - len(graphs) + sum(len(body.src[0].src) for body in graphs)


NEXT_STEPS = {
    "'clang'": "tinygrad compiles a part of this file for the host: install clang, or use a file with fixed shapes",
    "CUDA Error 702": "a kernel took too long: GPUTAX_SOFT_TIMEOUT_S raises the software device's limit",
    "CUDA Error 802": "the GPU proxy has ended or refuses this tenant: see `gputax proxy status`",
    "CUDA_ERROR_INVALID_PTX": "the software device does not know an instruction of this model: see the worker's stderr",
}


def _next_step(error: str) -> str:
    return next((step for words, step in NEXT_STEPS.items() if words in error), "see the worker's stderr")
