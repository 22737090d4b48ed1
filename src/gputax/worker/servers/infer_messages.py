"""The few messages of the Open Inference protocol over gRPC, in protobuf's own encoding; fields by their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gputax.worker.servers.tensors import Tensor

SERVICE = "/inference.GRPCInferenceService"
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def varint(value: int) -> bytes:
    """Encode a number; a negative one as its 64-bit complement."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(field: int, value: str | bytes) -> bytes:
    """Encode a string, bytes or a message."""
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | BYTES) + varint(len(data)) + data


def metadata_request(model: str) -> bytes:
    """Return a ModelMetadataRequest."""
    return text(1, model)


def infer_request(model: str, tensors: Sequence[Tensor]) -> bytes:
    """Return a ModelInferRequest with raw contents, as all servers take them."""
    out = [text(1, model)]
    for tensor in tensors:
        shape = b"".join(varint(side) for side in tensor.values.shape)
        out.append(text(5, text(1, tensor.name) + text(2, tensor.datatype) + text(3, shape)))
    out += [text(7, tensor.values.tobytes()) for tensor in tensors]
    return b"".join(out)


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Return the fields of a message: numbers and pieces of bytes. ValueError if it is not one."""
    position = 0
    while position < len(data):
        key, position = _number(data, position)
        kind = key & 7
        if kind == VARINT:
            value, position = _number(data, position)
            yield key >> 3, value
            continue
        size = {FIXED64: 8, FIXED32: 4}.get(kind, -1)
        if kind == BYTES:
            size, position = _number(data, position)
        if size < 0 or position + size > len(data):
            raise ValueError("not a protobuf message")
        yield key >> 3, data[position : position + size]
        position += size


def _number(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise ValueError("not a protobuf message")
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
        shift += 7


def metadata_of(data: bytes) -> dict[str, Any]:
    """Return a ModelMetadataResponse in the form of the HTTP protocol's."""
    found: dict[str, Any] = {"name": "", "platform": "", "inputs": []}
    for field, value in fields(data):
        if isinstance(value, bytes) and field in (1, 3):
            found["name" if field == 1 else "platform"] = value.decode("utf-8", "replace")
        elif isinstance(value, bytes) and field == 4:
            found["inputs"].append(_tensor(value))
    return found


def server_of(data: bytes) -> tuple[str, str]:
    """Return name and version of a ServerMetadataResponse."""
    texts = {field: value.decode("utf-8", "replace") for field, value in fields(data) if isinstance(value, bytes)}
    return texts.get(1, ""), texts.get(2, "")


def _tensor(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {"name": "", "datatype": "", "shape": []}
    for field, value in fields(data):
        if field == 3:
            found["shape"] += _packed(value) if isinstance(value, bytes) else [_signed(value)]
        elif isinstance(value, bytes) and field in (1, 2):
            found["name" if field == 1 else "datatype"] = value.decode("utf-8", "replace")
    return found


def _packed(data: bytes) -> list[int]:
    numbers, position = [], 0
    while position < len(data):
        value, position = _number(data, position)
        numbers.append(_signed(value))
    return numbers


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
