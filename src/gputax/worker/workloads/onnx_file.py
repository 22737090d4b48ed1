"""Write a workload as an ONNX file and a separate file of weights, one tensor in memory at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from gputax.worker.workloads.model_store import Progress
from gputax.worker.workloads.workload import (
    FLOAT_TYPES,
    OPSET,
    Array,
    Constant,
    Node,
    Parameter,
    TensorSpec,
    Workload,
)

# The oldest IR that supports opset 17: older engines can read the file.
_IR_VERSION = 8
# Engines map the weights into memory page by page; a tensor must start on a page for that.
_PAGE = 4096
_ONNX_TYPES: dict[str, int] = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "int64": TensorProto.INT64,
}


@dataclass(frozen=True)
class Written:
    """One written file."""

    bytes: int
    sha256: str


def weights_bytes(workload: Workload, precision: str) -> int:
    """Return how large the file of weights will be."""
    width = np.dtype(FLOAT_TYPES[precision]).itemsize
    sizes = [parameter.size * width for parameter in workload.parameters]
    return sum(_aligned(size) for size in sizes[:-1]) + sizes[-1]


def write_weights(
    workload: Workload,
    precision: str,
    values: Callable[[Parameter], Array],
    path: Path,
    progress: Progress | None = None,
) -> Written:
    """Write all parameters in the graph's layout and precision; `values` gives each in its own layout."""
    digest, total, done = hashlib.sha256(), weights_bytes(workload, precision), 0
    with path.open("wb") as file:
        for parameter in workload.parameters:
            array = values(parameter)
            array = np.ascontiguousarray(array.T if parameter.transposed else array, FLOAT_TYPES[precision])
            for chunk in (b"\0" * (_aligned(done) - done), array.reshape(-1).view(np.uint8).data):
                file.write(chunk)
                digest.update(chunk)
                done += len(chunk)
            if progress:
                progress(done, total)
    return Written(done, digest.hexdigest())


def write_graph(workload: Workload, precision: str, path: Path, weights_name: str, weights: Written) -> Written:
    """Write the graph, which refers to the weights by file name and contains their sha256."""
    data = onnx_model(workload, precision, weights_name, weights.sha256).SerializeToString(deterministic=True)
    path.write_bytes(data)
    return Written(len(data), hashlib.sha256(data).hexdigest())


def onnx_model(workload: Workload, precision: str, weights_name: str, weights_sha256: str) -> onnx.ModelProto:
    """Return the graph as ONNX structure without the values of its weights."""
    graph = helper.make_graph(
        [_node(node, precision) for node in workload.graph.nodes],
        workload.name,
        [_value_info(spec, precision) for spec in workload.inputs]
        + [_state_info(state.input, state.axes, precision) for state in workload.states],
        [_value_info(spec, precision) for spec in workload.outputs]
        + [_state_info(state.output, state.axes_after, precision) for state in workload.states],
        [_constant(constant, precision) for constant in workload.graph.constants]
        + _references(workload.parameters, precision, weights_name),
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=_IR_VERSION,
        producer_name="gputax",
        producer_version=workload.graph_version,
    )
    # So the graph's sha256 identifies both files.
    helper.set_model_props(model, {"weights_sha256": weights_sha256})
    return model


def _aligned(offset: int) -> int:
    return -(-offset // _PAGE) * _PAGE


def _references(parameters: tuple[Parameter, ...], precision: str, weights_name: str) -> list[onnx.TensorProto]:
    dtype = FLOAT_TYPES[precision]
    tensors, offset = [], 0
    for parameter in parameters:
        offset, length = _aligned(offset), parameter.size * np.dtype(dtype).itemsize
        tensor = TensorProto(
            name=parameter.name,
            dims=parameter.graph_shape,
            data_type=_ONNX_TYPES[dtype],
            data_location=TensorProto.EXTERNAL,
        )
        for key, value in (("location", weights_name), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
        offset += length
    return tensors


def _constant(constant: Constant, precision: str) -> onnx.TensorProto:
    floats = FLOAT_TYPES["fp32" if constant.exact else precision]
    dtype = floats if isinstance(constant.values, float) else "int64"
    return onnx.numpy_helper.from_array(np.array(constant.values, dtype), constant.name)


def _node(node: Node, precision: str) -> onnx.NodeProto:
    attributes: dict[str, Any] = dict(node.attributes)
    if node.op == "Cast":
        # Any other word than a type's is the graph's own precision.
        attributes["to"] = _ONNX_TYPES.get(str(attributes["to"]), _ONNX_TYPES[FLOAT_TYPES[precision]])
    return helper.make_node(node.op, node.inputs, [node.output], name=node.output, **attributes)


def _value_info(spec: TensorSpec, precision: str) -> onnx.ValueInfoProto:
    dtype = _ONNX_TYPES[spec.dtype_in(precision)]
    return helper.make_tensor_value_info(spec.name, dtype, list(spec.axes) or ["batch", *spec.shape])


def _state_info(name: str, axes: tuple[str | int, ...], precision: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, _ONNX_TYPES[FLOAT_TYPES[precision]], list(axes))
