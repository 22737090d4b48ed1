"""The wire format: whatever is packed comes back, and whatever is broken is refused."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest

from gputax.errors import WorkerError
from gputax.worker.protocol import decode_array, decode_message, encode_array, encode_message


@pytest.mark.parametrize("values", [[], [0], [-(2**63), 2**63 - 1, 7], list(range(10_000))])
def test_arrays_come_back_whole(values: list[int]) -> None:
    array = np.array(values, dtype=np.int64)
    back = decode_array(encode_array(array))
    assert back.dtype == np.int64
    assert back.tolist() == values


def test_an_array_travels_as_little_endian_int64() -> None:
    packed = encode_array(np.array([1, -2], dtype=np.int64))
    raw = zlib.decompress(base64.b64decode(packed["int64"]))
    assert raw == (1).to_bytes(8, "little") + (-2).to_bytes(8, "little", signed=True)


@pytest.mark.parametrize(
    "packed",
    [
        None,
        {},
        {"int64": "!!!", "length": 1},
        {"int64": "QUJD", "length": 1},
        {"int64": base64.b64encode(zlib.compress(b"1234567")).decode(), "length": 1},
        {"int64": base64.b64encode(zlib.compress(b"\0" * 64)).decode(), "length": 2},
        {"int64": base64.b64encode(zlib.compress(b"")).decode(), "length": -1},
        {"int64": base64.b64encode(zlib.compress(b"")).decode(), "length": 10**18},
    ],
)
def test_broken_arrays_are_the_workers_fault(packed: object) -> None:
    with pytest.raises(WorkerError, match="array that cannot be decoded"):
        decode_array(packed)


def test_a_message_is_one_line() -> None:
    line = encode_message({"id": 1, "text": "two\nlines"})
    assert line.count(b"\n") == 1
    assert decode_message(line) == {"id": 1, "text": "two\nlines"}
