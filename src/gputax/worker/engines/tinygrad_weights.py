"""The weights of an ONNX file on the device, shared by all captures of the model; the file is read once, in pieces."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax.errors import EngineError, PreflightError

OUT_OF_MEMORY = (
    "use a smaller --batch or model; or give the tenant more memory (gputax proxy start --memory-mb), "
    "the software device with GPUTAX_SOFT_MEMORY_MB"
)
MB = 1e6


@dataclass(frozen=True)
class DeviceWeights:
    """The file's names of inputs and outputs, and its weights as buffers of tinygrad."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    buffers: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    constants: dict[str, Any]
    """Scalars, shapes and indices as plain numbers: tinygrad would compile C for the host to read a scalar."""

    def tensors(self) -> dict[str, Any]:
        """Return tensors of tinygrad over the buffers, for a new capture."""
        from tinygrad import Tensor
        from tinygrad.uop.ops import UOp, buffers

        found = {}
        for name, buffer in self.buffers.items():
            graph = UOp.new_buffer(buffer.device, buffer.size, buffer.dtype)
            buffers[graph] = buffer.ref(1)
            found[name] = Tensor(graph.reshape(self.shapes[name]))
        return found


def load_weights(path: str) -> DeviceWeights:
    """Copy every tensor of floats to the device; the error for one that does not fit names it."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    names = {tensor.name for tensor in graph.initializer}
    found = DeviceWeights(
        tuple(value.name for value in graph.input if value.name not in names),
        tuple(value.name for value in graph.output),
        {},
        {},
        dict(_constants(graph)),
    )
    for name, values in _arrays(graph, Path(path).parent):
        found.buffers[name] = _on_device(name, values, found.buffers)
        found.shapes[name] = values.shape
    return found


def _constants(graph: Any) -> Iterator[tuple[str, Any]]:
    from onnx import TensorProto, numpy_helper

    for tensor in graph.initializer:
        if not _is_weight(tensor) and tensor.data_location != TensorProto.EXTERNAL:
            yield tensor.name, numpy_helper.to_array(tensor).tolist()
    for node in graph.node:
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.name == "value" and not _is_weight(attribute.t):
                yield node.output[0], numpy_helper.to_array(attribute.t).tolist()


def _is_weight(tensor: Any) -> bool:
    from onnx import TensorProto

    return tensor.data_type in (TensorProto.FLOAT, TensorProto.FLOAT16) and bool(tensor.dims) and 0 not in tensor.dims


def _arrays(graph: Any, folder: Path) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield the weights; scalars and integers are left to tinygrad, which folds them into its kernels."""
    from onnx import TensorProto, helper, numpy_helper

    for tensor in graph.initializer:
        if not _is_weight(tensor):
            continue
        if tensor.data_location != TensorProto.EXTERNAL:
            yield tensor.name, np.ascontiguousarray(numpy_helper.to_array(tensor))
            continue
        where = {entry.key: entry.value for entry in tensor.external_data}
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        try:
            yield (
                tensor.name,
                np.memmap(
                    folder / where["location"], dtype, "r", int(where.get("offset", 0)), tuple(tensor.dims), order="C"
                ),
            )
        except (OSError, KeyError, ValueError) as error:
            raise PreflightError(
                f"the weights of {tensor.name} cannot be read: {error}",
                where=str(folder),
                next_step="check the file with `gputax models list`, or pass another with --weights",
            ) from error


def _on_device(name: str, values: npt.NDArray[Any], before: dict[str, Any]) -> Any:
    from tinygrad import dtypes
    from tinygrad.device import Buffer
    from tinygrad.runtime.autogen import cuda
    from tinygrad.runtime.ops_cuda import check

    dtype = dtypes.float16 if values.dtype == np.float16 else dtypes.float32
    try:
        buffer = Buffer("CUDA", values.size, dtype).allocate()
    except MemoryError as error:
        loaded_mb = sum(each.nbytes for each in before.values()) / MB
        raise EngineError(
            f"CUDA out of memory: the tensor {name} ({values.nbytes / MB:.1f} MB) does not fit beside "
            f"{loaded_mb:.1f} MB of other weights",
            where="engine tinygrad",
            next_step=OUT_OF_MEMORY,
        ) from error
    # Not tinygrad's own copy: it would keep a second, page-locked copy of every tensor until the next wait.
    check(cuda.cuMemcpyHtoD_v2(buffer._buf, ctypes.c_void_p(values.ctypes.data), values.nbytes))
    return buffer
