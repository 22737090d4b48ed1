"""PyTorch with the transformers library's own modules: inference mode, device-synchronised, optionally compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax.errors import PreflightError, UsageError, unknown_name
from gputax.worker.engines.engine import EngineRequest, Samples
from gputax.worker.workloads import load_workload
from gputax.worker.workloads.workload import seeded_state

CAPTURE_WARMUP_RUNS = 3


class TorchEngine:
    """Runs a transformers module with the same seeded weights as the ONNX graph."""

    def __init__(self, request: EngineRequest) -> None:
        torch, transformers = _import_torch()
        self._torch = torch
        self._request = request
        self._versions = {"torch": torch.__version__, "transformers": transformers.__version__}
        self.device = _choose_device(torch, request)
        torch.set_num_threads(request.threads)
        module = build_module(transformers, torch, request.workload, request.seed).eval()
        dtype = torch.float16 if request.precision == "fp16" else torch.float32
        self._module = module.to(self.device, dtype)
        self._forward: Callable[..., Any] = self._module
        if request.options["compile"]:
            self._forward = torch.compile(self._module)
        self._copies = str(request.options["copies"]) if self.device == "cuda" else "none"
        self._tensors: dict[str, Any] = {}
        self._graphs: dict[int, tuple[Any, dict[str, Any], list[Any]]] = {}
        self._host_output = np.zeros((request.max_batch, 1), dtype=np.float32)
        self.response_address = int(self._host_output.ctypes.data)
        self.response_bytes = 4

    def facts(self) -> dict[str, Any]:
        """Return what was actually loaded."""
        torch = self._torch
        parameter = next(self._module.parameters())
        return {
            "engine": "torch",
            "engine_version": self._versions["torch"],
            "transformers_version": self._versions["transformers"],
            "provider": f"torch {parameter.device}",
            "device_name": torch.cuda.get_device_name(0) if self.device == "cuda" else None,
            "threads": torch.get_num_threads(),
            "precision": self._request.precision,
            "copies": self._copies,
            "options": dict(self._request.options),
            "weights": "seeded",
        }

    def adapt_inputs(self, inputs: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Keep the workload's layout; only fp16 changes the type."""
        if self._request.precision == "fp16":
            return {
                name: values.astype(np.float16) if values.dtype == np.float32 else values
                for name, values in inputs.items()
            }
        return inputs

    def load_samples(self, samples: Samples) -> None:
        """Share the arrays with torch; on CUDA with copies excluded they are copied to the device once, here."""
        torch = self._torch
        self._tensors = {name: torch.from_numpy(values) for name, values in samples.items()}
        if self._copies == "included":
            self._tensors = {name: tensor.pin_memory() for name, tensor in self._tensors.items()}
        elif self._copies == "excluded":
            self._tensors = {name: tensor.to(self.device) for name, tensor in self._tensors.items()}
        # Pinned and device tensors are copies: rows gathered later would not be seen in them.
        self._source = samples if self._copies != "none" else {}
        self._gather_start = len(next(iter(samples.values()))) - self._request.max_batch

    def run(self, first: int, count: int) -> None:
        """Execute one batch and wait until the device has finished it."""
        with self._torch.inference_mode():
            batch = self._batch(first, count)
            outputs = self._replay(batch, count) if self._request.options["cuda_graphs"] else self._call(batch)
            if self._copies == "included":
                for output in outputs:
                    output.cpu()
            if self.device == "cuda":
                self._torch.cuda.synchronize()

    def close(self) -> None:
        """Drop module and graphs, and free the device memory."""
        self._graphs.clear()
        self._tensors.clear()
        del self._module, self._forward
        if self.device == "cuda":
            self._torch.cuda.empty_cache()

    def _batch(self, first: int, count: int) -> dict[str, Any]:
        names = FORWARD_NAMES[self._request.workload]
        rows = slice(first, first + count)
        if self._source and first >= self._gather_start:
            for name, values in self._source.items():
                self._tensors[name][rows].copy_(self._torch.from_numpy(values[rows]))
        tensors = {names[name]: tensor[rows] for name, tensor in self._tensors.items()}
        if self._copies == "included":
            return {name: tensor.to(self.device, non_blocking=True) for name, tensor in tensors.items()}
        return tensors

    def _call(self, batch: dict[str, Any]) -> list[Any]:
        return [value for value in self._forward(**batch).to_tuple() if hasattr(value, "cpu")]

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


def _import_torch() -> tuple[Any, Any]:
    try:
        import torch
        import transformers
    except ImportError as error:
        raise PreflightError(
            f"the torch engine needs torch and transformers: {error}", next_step="pip install 'gputax[torch]'"
        ) from error
    return torch, transformers


def _choose_device(torch: Any, request: EngineRequest) -> str:
    available = bool(torch.cuda.is_available())
    if request.device == "cuda" and not available:
        raise PreflightError(
            "cuda was requested, but torch finds no CUDA device",
            where="engine torch",
            next_step="check the driver with `gputax doctor`, or use --device cpu",
        )
    device = "cuda" if available and request.device != "cpu" else "cpu"
    if device == "cpu" and request.options["cuda_graphs"]:
        raise UsageError("cuda_graphs=true needs a CUDA device")
    if device == "cpu" and request.precision == "fp16":
        raise PreflightError("fp16 on a CPU would measure its emulation", next_step="use --precision fp32")
    return device


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
