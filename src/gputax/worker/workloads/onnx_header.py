"""The header of an ONNX file, read without its weights: inputs, outputs, opset, files and the number of weights."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import onnx
from onnx import TensorProto

from gputax.errors import PreflightError
from gputax.worker.workloads.model_store import file_sha256

# Field numbers of onnx.proto. onnx.load reads weights that are inside the file, as in MLPerf's BERT: 1.34 GB
# took 2.9 s and 2.6 GB of memory; skipping them takes 0.03 s and no memory.
_MODEL_GRAPH, _MODEL_OPSETS = 7, 8
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT = 1, 5, 11, 12
_TENSOR_DIMS, _TENSOR_NAME, _TENSOR_EXTERNAL_DATA = 1, 8, 13
_NODE_INPUT, _NODE_OP_TYPE, _NODE_ATTRIBUTE, _ATTRIBUTE_TENSOR = 1, 4, 5, 5
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
    weight_values: int = 0
    """The numbers in all of its weights."""
    table_rows: Mapping[str, int] = field(default_factory=dict)
    """Inputs that look up rows of a table of weights directly, as token ids do, and the rows of the smallest one."""


class _Malformed(Exception):
    """The bytes are not a protobuf message, or end too early."""


def read_onnx_header(path: Path, option: str = "--weights") -> OnnxHeader:
    """Read the header, or say why the file that the option names is not usable."""
    try:
        with path.open("rb") as file:
            return _header(file, os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise PreflightError(
            f"cannot read the model file ({error.strerror})", where=str(path), next_step=f"check {option}"
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
    inputs, outputs, initializers, external, node_count, values = [], [], dict[str, int](), set(), 0, 0
    looked_up: list[tuple[str, str]] = []
    file.seek(graph[0])
    for number, start, end in _fields(file, graph[1]):
        if number == _GRAPH_NODE:
            node_count += 1
            operation, sources, constants = _node(file, start, end)
            values += constants
            if operation == "Gather" and len(sources) == 2:
                looked_up.append((sources[0], sources[1]))
        elif number == _GRAPH_INPUT:
            inputs.append(_tensor(_parsed(onnx.ValueInfoProto, file, start, end)))
        elif number == _GRAPH_OUTPUT:
            outputs.append(_tensor(_parsed(onnx.ValueInfoProto, file, start, end)))
        elif number == _GRAPH_INITIALIZER:
            dims = _dims(file, start, end)
            values += math.prod(dims)
            file.seek(start)
            for part, part_start, part_end in _fields(file, end):
                if part == _TENSOR_NAME:
                    name = _text(file, part_start, part_end)
                    initializers[name] = dims[0] if dims else 0
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
        values,
        _table_rows(looked_up, initializers),
    )


def _table_rows(looked_up: list[tuple[str, str]], first_axes: Mapping[str, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for table, index in looked_up:
        if first_axes.get(table, 0) > 0:
            found[index] = min(first_axes[table], found.get(index, first_axes[table]))
    return found


def _dims(file: BinaryIO, start: int, end: int) -> tuple[int, ...]:
    """Return the axes of a tensor; the list may be packed or not."""
    found: list[int] = []
    file.seek(start)
    for number, part_start, part_end in _fields(file, end):
        if number == _TENSOR_DIMS:
            file.seek(part_start)
            while file.tell() < part_end:
                found.append(_varint(file, part_end))
            file.seek(part_end)
    return tuple(found)


def _node(file: BinaryIO, start: int, end: int) -> tuple[str, list[str], int]:
    """Return a node's operation, its inputs, and the number of values of a `Constant`: some exporters' weights."""
    file.seek(start)
    fields = list(_fields(file, end))
    operation = "".join(_text(file, *span) for number, *span in fields if number == _NODE_OP_TYPE)
    sources = [_text(file, *span) for number, *span in fields if number == _NODE_INPUT]
    values = 0
    for number, part_start, part_end in fields if operation == "Constant" else ():
        if number == _NODE_ATTRIBUTE:
            file.seek(part_start)
            tensors = [span for part, *span in _fields(file, part_end) if part == _ATTRIBUTE_TENSOR]
            values += sum(math.prod(_dims(file, *span)) for span in tensors)
    return operation, sources, values


def _text(file: BinaryIO, start: int, end: int) -> str:
    return _read(file, start, end).decode(errors="replace")


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
    """Walk one message up to `end`; give number, start and end of each whole number and each field with a length."""
    while (position := file.tell()) < end:
        tag = _varint(file, end)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise _Malformed(f"byte {position} does not start a field")
        if wire == _VARINT:
            start = file.tell()
            _varint(file, end)
            after = file.tell()
            yield number, start, after
            file.seek(after)
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


def files_of(path: Path, header: OnnxHeader) -> tuple[Path, ...]:
    """Return the file and its external data; all of them must be there."""
    files = (path, *(path.parent / name for name in header.external_files))
    missing = [file for file in files if not file.is_file()]
    if missing:
        raise PreflightError(
            f"the weights refer to {missing[0].name}, which does not exist",
            where=str(path),
            next_step=f"put {missing[0].name} into {path.parent}",
        )
    return files


def files_sha256(files: tuple[Path, ...]) -> str:
    """Return the file's sha256; with external data, the sha256 of all the files' sha256s."""
    digests = [file_sha256(file) for file in files]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def shown_tensors(tensors: tuple[HeaderTensor, ...]) -> str:
    """Return names, types and shapes as the file declares them."""
    return ", ".join(
        f"{tensor.name} {tensor.dtype} " + ("[?]" if tensor.shape is None else f"[{', '.join(map(str, tensor.shape))}]")
        for tensor in tensors
    )
