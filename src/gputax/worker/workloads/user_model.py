"""A user's own ONNX file: read its header without its weights, and fit its inputs, layout and type to a workload."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import onnx
from onnx import TensorProto

from gputax.errors import PreflightError
from gputax.worker.workloads.model_store import file_sha256
from gputax.worker.workloads.workload import TensorSpec, Workload

# Field numbers of onnx.proto. onnx.load reads weights that are inside the file, as in MLPerf's BERT: 1.34 GB
# took 2.9 s and 2.6 GB of memory; skipping them takes 0.03 s and no memory.
_MODEL_GRAPH, _MODEL_OPSETS = 7, 8
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT = 1, 5, 11, 12
_TENSOR_NAME, _TENSOR_EXTERNAL_DATA = 8, 13
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class HeaderTensor:
    """An input or output as the file declares it."""

    name: str
    dtype: str
    """numpy's name, such as float32, or ONNX's if numpy has none."""
    shape: tuple[int | str, ...] | None
    """Numbers are fixed, names are free; None if the file does not say."""


@dataclass(frozen=True)
class OnnxHeader:
    """The header of an ONNX file."""

    inputs: tuple[HeaderTensor, ...]
    outputs: tuple[HeaderTensor, ...]
    opset: int
    node_count: int
    external_files: tuple[str, ...]


class _Malformed(Exception):
    """The bytes are not a protobuf message, or end too early."""


def read_onnx_header(path: Path) -> OnnxHeader:
    """Read the header, or say why the file is not usable."""
    try:
        with path.open("rb") as file:
            return _header(file, os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise PreflightError(
            f"cannot read the weights file ({error.strerror})", where=str(path), next_step="check --weights"
        ) from error
    except _Malformed as error:
        raise PreflightError(
            f"not an ONNX file, or damaged: {error}",
            where=str(path),
            next_step="export or download it again, and check it with: python -m onnx.checker FILE",
        ) from error


def _header(file: BinaryIO, size: int) -> OnnxHeader:
    if size == 0:
        raise _Malformed("the file is empty")
    graph: tuple[int, int] | None = None
    opsets = []
    for number, start, end in _fields(file, size):
        if number == _MODEL_GRAPH:
            graph = (start, end)
        elif number == _MODEL_OPSETS:
            opsets.append(_parsed(onnx.OperatorSetIdProto, file, start, end))
    if graph is None:
        raise _Malformed("it has no graph")
    inputs, outputs, initializers, external, node_count = [], [], set(), set(), 0
    file.seek(graph[0])
    for number, start, end in _fields(file, graph[1]):
        if number == _GRAPH_NODE:
            node_count += 1
        elif number == _GRAPH_INPUT:
            inputs.append(_tensor(_parsed(onnx.ValueInfoProto, file, start, end)))
        elif number == _GRAPH_OUTPUT:
            outputs.append(_tensor(_parsed(onnx.ValueInfoProto, file, start, end)))
        elif number == _GRAPH_INITIALIZER:
            file.seek(start)
            for part, part_start, part_end in _fields(file, end):
                if part == _TENSOR_NAME:
                    initializers.add(_read(file, part_start, part_end).decode(errors="replace"))
                elif part == _TENSOR_EXTERNAL_DATA:
                    entry = _parsed(onnx.StringStringEntryProto, file, part_start, part_end)
                    if entry.key == "location":
                        external.add(str(entry.value))
    if not (node_count and inputs and outputs):
        raise _Malformed(f"its graph has {node_count} nodes, {len(inputs)} inputs, {len(outputs)} outputs")
    versions = [opset.version for opset in opsets if opset.domain in ("", "ai.onnx")]
    if not versions:
        raise _Malformed("it has no opset")
    return OnnxHeader(
        # Files of IR version 3 list their weights among the inputs.
        tuple(tensor for tensor in inputs if tensor.name not in initializers),
        tuple(outputs),
        max(versions),
        node_count,
        tuple(sorted(external)),
    )


def _tensor(info: Any) -> HeaderTensor:
    tensor = info.type.tensor_type
    if not isinstance(info.name, str):  # protobuf gives bytes if a name is not UTF-8
        raise _Malformed(f"a tensor has the name {info.name!r}")
    shape: tuple[int | str, ...] | None = None
    if tensor.HasField("shape"):
        shape = tuple(_dimension(dim) for dim in tensor.shape.dim)
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    except (KeyError, ValueError):
        known = tensor.elem_type in TensorProto.DataType.values()
        dtype = TensorProto.DataType.Name(tensor.elem_type) if known else f"type {tensor.elem_type}"
    return HeaderTensor(info.name, dtype, shape)


def _dimension(dim: Any) -> int | str:
    # Exporters write a free axis as a name, as nothing at all, as 0 or as -1.
    return dim.dim_value if dim.dim_value > 0 else str(dim.dim_param or "?")


def _fields(file: BinaryIO, end: int) -> Iterator[tuple[int, int, int]]:
    """Walk one message up to `end`; give number, start and end of each field that has a length."""
    while (position := file.tell()) < end:
        tag = _varint(file, end)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise _Malformed(f"byte {position} does not start a field")
        if wire == _VARINT:
            _varint(file, end)
            continue
        if wire not in (_FIXED64, _BYTES, _FIXED32):
            raise _Malformed(f"byte {position} has the unknown wire type {wire}")
        length = _varint(file, end) if wire == _BYTES else 8 if wire == _FIXED64 else 4
        start = file.tell()
        if start + length > end:
            raise _Malformed(f"it ends {start + length - end} bytes too early")
        if wire == _BYTES:
            yield number, start, start + length
        file.seek(start + length)


def _varint(file: BinaryIO, end: int) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1) if file.tell() < end else b""
        if not byte:
            raise _Malformed("it ends inside a number")
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    raise _Malformed("a number has more than ten bytes")


def _parsed(kind: Any, file: BinaryIO, start: int, end: int) -> Any:
    try:
        return kind.FromString(_read(file, start, end))
    except Exception as error:  # protobuf's DecodeError, whose module onnx does not document
        raise _Malformed(f"bytes {start} to {end} are not a {kind.__name__}") from error


def _read(file: BinaryIO, start: int, end: int) -> bytes:
    file.seek(start)
    return file.read(end - start)


# Types that an engine can convert our samples to without changing their meaning.
_ACCEPTED_TYPES: dict[str, tuple[str, ...]] = {
    "float32": ("float32", "float16"),
    "int64": ("int64", "int32"),
}


@dataclass(frozen=True)
class InputBinding:
    """One of the workload's inputs and the file's name, type and layout for it."""

    source: str
    name: str
    dtype: str
    layout: str
    """`NCHW` or `NHWC` for images, else empty. The workload's own samples are NCHW."""


@dataclass(frozen=True)
class OutputBinding:
    """One of the workload's outputs and the file's name and type for it."""

    source: str
    name: str
    dtype: str


@dataclass(frozen=True)
class UserModel:
    """A user's ONNX file that matches the workload."""

    path: Path
    inputs: tuple[InputBinding, ...]
    outputs: tuple[OutputBinding, ...]
    all_outputs: tuple[str, ...]
    fixed_batch: int | None
    """The only batch size that the file takes, or None if the batch axis is free."""
    opset: int
    files: tuple[Path, ...]
    """The file itself, and its external data."""
    notes: tuple[str, ...] = ()


def describe_user_model(path: Path, workload: Workload) -> UserModel:
    """Read the file's header and bind it to the workload, or say what it has and what is expected."""
    header = read_onnx_header(path)
    files = (path, *(path.parent / name for name in header.external_files))
    missing = [file for file in files if not file.is_file()]
    if missing:
        raise PreflightError(
            f"the weights refer to {missing[0].name}, which does not exist",
            where=str(path),
            next_step=f"put {missing[0].name} into {path.parent}",
        )
    inputs, batches, notes = [], set(), []
    for spec in workload.inputs:
        tensor = _named(spec, header.inputs, alone=len(workload.inputs) == len(header.inputs) == 1)
        layout = _layout(spec, tensor) if tensor else None
        if tensor is None or layout is None or tensor.dtype not in _ACCEPTED_TYPES[spec.dtype]:
            raise _incompatible(path, workload, header)
        inputs.append(InputBinding(spec.name, tensor.name, tensor.dtype, layout))
        batches.add(tensor.shape[0] if tensor.shape else "?")
        if layout == "NCHW" and _layout(spec, tensor, ("NHWC",)) is not None:
            notes.append(f"{tensor.name} does not fix its axes: NCHW is assumed")
    fixed = {size for size in batches if isinstance(size, int)}
    if len(header.inputs) != len(workload.inputs) or len(fixed) > 1:
        raise _incompatible(path, workload, header)
    return UserModel(
        path,
        tuple(inputs),
        _outputs(path, workload, header),
        tuple(tensor.name for tensor in header.outputs),
        fixed.pop() if fixed else None,
        header.opset,
        files,
        tuple(notes),
    )


def user_model_sha256(model: UserModel) -> str:
    """Return the file's sha256; with external data, the sha256 of all the files' sha256s."""
    digests = [file_sha256(file) for file in model.files]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _outputs(path: Path, workload: Workload, header: OnnxHeader) -> tuple[OutputBinding, ...]:
    """Bind by name first; the rest by shape and in order."""
    by_name = {spec.name: _named(spec, header.outputs, alone=False) for spec in workload.outputs}
    free = [tensor for tensor in header.outputs if tensor not in by_name.values()]
    bindings = []
    for spec in workload.outputs:
        tensor = by_name[spec.name]
        if tensor is None:
            tensor = next((each for each in free if each.shape and _layout(spec, each) is not None), None)
            if tensor is None:
                raise _incompatible(path, workload, header)
            free.remove(tensor)
        bindings.append(OutputBinding(spec.name, tensor.name, tensor.dtype))
    return tuple(bindings)


def _named(spec: TensorSpec, tensors: tuple[HeaderTensor, ...], *, alone: bool) -> HeaderTensor | None:
    """Return the tensor with the spec's name or alias; a single one needs no name."""
    if alone:
        return tensors[0]
    names = (spec.name, *spec.aliases)
    # TensorFlow's exporters append the number of the output, as in input_ids:0.
    return next((tensor for tensor in tensors if tensor.name.partition(":")[0] in names), None)


def _layout(spec: TensorSpec, tensor: HeaderTensor, layouts: tuple[str, ...] = ("NCHW", "NHWC")) -> str | None:
    """Return the layout in which the shapes fit ("" if there is only one), or None."""
    if tensor.shape is None:
        return "NCHW" if len(spec.shape) == 3 and "NCHW" in layouts else ""
    own = tensor.shape[1:]
    if len(spec.shape) != 3:
        return "" if _fits(spec.shape, own) else None
    channels, height, width = spec.shape
    wanted = {"NCHW": spec.shape, "NHWC": (height, width, channels)}
    return next((layout for layout in layouts if _fits(wanted[layout], own)), None)


def _fits(wanted: tuple[int, ...], own: tuple[int | str, ...]) -> bool:
    return len(wanted) == len(own) and all(
        isinstance(size, str) or size == number for number, size in zip(wanted, own, strict=True)
    )


def _incompatible(path: Path, workload: Workload, header: OnnxHeader) -> PreflightError:
    def wanted(specs: tuple[TensorSpec, ...]) -> str:
        return ", ".join(f"{spec.name} {spec.dtype} [batch, {', '.join(map(str, spec.shape))}]" for spec in specs)

    def found(tensors: tuple[HeaderTensor, ...]) -> str:
        return ", ".join(
            f"{tensor.name} {tensor.dtype} "
            + ("[?]" if tensor.shape is None else f"[{', '.join(map(str, tensor.shape))}]")
            for tensor in tensors
        )

    return PreflightError(
        f"the file does not match {workload.name}: it has inputs {found(header.inputs)} and outputs "
        f"{found(header.outputs)}; expected {wanted(workload.inputs)} and {wanted(workload.outputs)}",
        where=str(path),
        next_step="export the model with these inputs and outputs, or choose the workload that it belongs to",
    )
