"""PyTorch with the transformers library's modules or the user's: inference mode, synchronised, may be compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax.errors import PreflightError, UsageError, unknown_name
from gputax.worker.engines.engine import EngineRequest, Samples
from gputax.worker.engines.onnx import resolve_model
from gputax.worker.engines.reference import Checked, as_dicts, checked_rows, tf32_of
from gputax.worker.engines.runtime_device import RuntimeDevice, open_runtime_device
from gputax.worker.engines.torch_module import TorchModel, forward_failed, own_torch_model
from gputax.worker.workloads import load_workload
from gputax.worker.workloads.workload import seeded_state

CAPTURE_WARMUP_RUNS = 3


class TorchEngine:
    """Runs a transformers module with the same seeded weights as the ONNX graph, or a module of the user's own."""

    def __init__(self, request: EngineRequest) -> None:
        torch = import_torch()
        self._torch = torch
        self._request = request
        self._found = _found_device(torch, request)
        self.device = self._found.kind if self._found else "cpu"
        self._place = "cuda" if self._found else "cpu"
        torch.set_num_threads(request.threads)
        self._model = own_torch_model(torch, request) if request.own.file else _built_in(torch, request)
        self._module = self._model.module.eval().to(self._place)
        self._forward: Callable[..., Any] = self._module
        if request.options["compile"]:
            self._forward = torch.compile(self._module)
        self._copies = str(request.options["copies"]) if self._found else "none"
        self._samples: Samples = {}
        # Of a module of the user's there is no second implementation to compare with.
        self._checks = self._found is not None and self._found.has_answers and not request.own.file
        self._checked: dict[int, Checked] = {}
        self._tensors: dict[str, Any] = {}
        self._graphs: dict[int, tuple[Any, dict[str, Any], list[Any]]] = {}
        self._host_output = np.zeros((request.max_batch, 1), dtype=np.float32)
        self.response_address = int(self._host_output.ctypes.data)
        self.response_bytes = 4

    def facts(self) -> dict[str, Any]:
        """Return what was actually loaded."""
        torch = self._torch
        parameter = next(self._module.parameters(), None)
        return {
            "engine": "torch",
            "engine_version": torch.__version__,
            "provider": f"torch {self._place if parameter is None else parameter.device}",
            "device_name": None,
            "threads": torch.get_num_threads(),
            "precision": self._model.precision,
            "copies": self._copies,
            "options": dict(self._request.options),
            **self._model.facts,
            **(self._found.to_dict() if self._found else {}),
            **({"answers": as_dicts(self._checked)} if self._checked else {}),
        }

    def adapt_inputs(self, inputs: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Keep the workload's layout; only fp16 changes the type."""
        if self._model.precision == "fp16":
            return {
                name: values.astype(np.float16) if values.dtype == np.float32 else values
                for name, values in inputs.items()
            }
        return inputs

    def load_samples(self, samples: Samples) -> None:
        """Share the arrays with torch; on CUDA with copies excluded they are copied to the device once, here."""
        torch = self._torch
        self._samples = samples
        self._tensors = {name: torch.from_numpy(values) for name, values in samples.items()}
        if self._copies == "included":
            self._tensors = {name: tensor.pin_memory() for name, tensor in self._tensors.items()}
        elif self._copies == "excluded":
            self._tensors = {name: tensor.to(self._place) for name, tensor in self._tensors.items()}
        # Pinned and device tensors are copies: rows gathered later would not be seen in them.
        self._source = samples if self._copies != "none" else {}
        self._gather_start = len(next(iter(samples.values()))) - self._request.max_batch

    def run(self, first: int, count: int) -> None:
        """Execute one batch and wait until the device has finished it."""
        with self._torch.inference_mode():
            batch = self._batch(first, count)
            if self._checks and count not in self._checked:
                self._checked[count] = self._check(batch, first, count)
            outputs = self._replay(batch, count) if self._request.options["cuda_graphs"] else self._call(batch)
            if self._copies == "included":
                for output in outputs:
                    output.cpu()
            if self._found:
                self._torch.cuda.synchronize()

    def close(self) -> None:
        """Drop module and graphs, and free the device memory."""
        self._graphs.clear()
        self._tensors.clear()
        del self._module, self._forward
        if self._found:
            self._torch.cuda.empty_cache()

    def _batch(self, first: int, count: int) -> dict[str, Any]:
        names = self._model.names
        rows: slice | int = slice(first, first + count) if self._model.batched else first
        if self._source and first >= self._gather_start:
            whole = slice(first, first + count)
            for name, values in self._source.items():
                self._tensors[name][whole].copy_(self._torch.from_numpy(values[whole]))
        tensors = {names[name]: tensor[rows] for name, tensor in self._tensors.items()}
        if self._copies == "included":
            return {name: tensor.to(self._place, non_blocking=True) for name, tensor in tensors.items()}
        return tensors

    def _check(self, batch: dict[str, Any], first: int, count: int) -> Checked:
        """Compare what the device computed with ONNX Runtime on the CPU, for the same weights and inputs."""
        names, outputs = OUTPUT_NAMES[self._request.workload], self._forward(**batch)
        got = {name: outputs[theirs].float().cpu().numpy() for name, theirs in names.items()}
        feeds = {name: values[first : first + count] for name, values in self._samples.items()}
        path = resolve_model(self._request).path
        return checked_rows("torch", path, got, feeds, tf32_of(self._request.precision), self._request.threads)

    def _call(self, batch: dict[str, Any]) -> list[Any]:
        try:
            return list(self._model.outputs(self._forward(**batch)))
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            if not self._request.own.file:
                raise
            raise forward_failed(self._request.own, error) from error

    def _replay(self, batch: dict[str, Any], count: int) -> list[Any]:
        """Copy the batch into the captured graph's own inputs and replay it; one graph per batch size."""
        if count not in self._graphs:
            self._graphs[count] = self._capture(batch)
        graph, inputs, outputs = self._graphs[count]
        for name, tensor in batch.items():
            inputs[name].copy_(tensor, non_blocking=True)
        graph.replay()
        return outputs

    def _capture(self, batch: dict[str, Any]) -> tuple[Any, dict[str, Any], list[Any]]:
        torch = self._torch
        inputs = {name: tensor.clone() for name, tensor in batch.items()}
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(CAPTURE_WARMUP_RUNS):
                self._call(inputs)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = self._call(inputs)
        return graph, inputs, outputs


def import_torch() -> Any:
    """Return torch, or say how to install it."""
    try:
        import torch
    except ImportError as error:
        raise PreflightError(
            f"the torch engine needs torch: {error}", where="engine torch", next_step="pip install 'gputax[torch]'"
        ) from error
    return torch


def _import_transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise PreflightError(
            f"the torch engine needs transformers for a built-in model: {error}",
            next_step="pip install 'gputax[torch]'",
        ) from error
    return transformers


def _built_in(torch: Any, request: EngineRequest) -> TorchModel:
    """Return the transformers library's module of a built-in workload."""
    transformers = _import_transformers()
    module = build_module(transformers, torch, request.workload, request.seed)
    return TorchModel(
        module.to(torch.float16 if request.precision == "fp16" else torch.float32),
        FORWARD_NAMES[request.workload],
        lambda output: (value for value in output.to_tuple() if hasattr(value, "cpu")),
        request.precision,
        {"transformers_version": transformers.__version__, "weights": "seeded"},
    )


def _found_device(torch: Any, request: EngineRequest) -> RuntimeDevice | None:
    """Return the requested device, None for the CPU."""
    if request.device == "cpu" or (request.device == "auto" and not request.libcuda and not torch.cuda.is_available()):
        if request.options["cuda_graphs"]:
            raise UsageError("cuda_graphs=true needs a CUDA device")
        if request.precision == "fp16" and not request.own.file:
            raise PreflightError("fp16 on a CPU would measure its emulation", next_step="use --precision fp32")
        return None
    found = open_runtime_device("torch", request.device)
    try:
        torch.cuda.init()
    # Not compiled for CUDA, no device, a driver that misses a symbol: each is an exception of another kind.
    except Exception as error:
        raise PreflightError(
            f"{request.device} was requested, but torch finds no CUDA device: {error}",
            where="engine torch",
            next_step="check the driver with `gputax doctor`, or use --device cpu",
        ) from error
    return found


# Our input names -> the module's keyword arguments.
FORWARD_NAMES: dict[str, dict[str, str]] = {
    "resnet50": {"pixel_values": "pixel_values"},
    "bert-large": {
        "input_ids": "input_ids",
        "input_mask": "attention_mask",
        "segment_ids": "token_type_ids",
    },
    "yolos-small": {"pixel_values": "pixel_values"},
}


# The file's output names -> those of the module's result.
OUTPUT_NAMES: dict[str, dict[str, str]] = {
    "resnet50": {"logits": "logits"},
    "bert-large": {"output_start_logits": "start_logits", "output_end_logits": "end_logits"},
    "yolos-small": {"logits": "logits", "pred_boxes": "pred_boxes"},
}


def empty_module(transformers: Any, workload: str) -> Any:
    """Return the module with the library's own initial weights; no download."""
    match workload:
        case "resnet50":
            return transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=1000))
        case "bert-large":
            config = transformers.BertConfig(
                hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
            )
            return transformers.BertForQuestionAnswering(config)
        case "yolos-small":
            config = transformers.YolosConfig(
                hidden_size=384,
                num_hidden_layers=12,
                num_attention_heads=6,
                intermediate_size=1536,
                image_size=[512, 864],
                num_detection_tokens=100,
                num_labels=91,
                use_mid_position_embeddings=True,
            )
            return transformers.YolosForObjectDetection(config)
    raise unknown_name("workload", workload, FORWARD_NAMES)


def build_module(transformers: Any, torch: Any, workload: str, seed: int) -> Any:
    """Return the module with the seeded weights of the ONNX graph."""
    module = empty_module(transformers, workload)
    state = {name: torch.from_numpy(values) for name, values in seeded_state(load_workload(workload), seed).items()}
    missing, unexpected = module.load_state_dict(state, strict=False)
    # Counters and index buffers are not weights; anything else would mean that the library renamed a layer.
    lost = [name for name in missing if not name.endswith(("num_batches_tracked", "position_ids", "token_type_ids"))]
    if lost or unexpected:
        raise PreflightError(
            f"this transformers version names its weights differently: {[*lost, *unexpected][:3]}",
            next_step="install the pinned versions: pip install -r requirements/torch.txt",
        )
    return module
