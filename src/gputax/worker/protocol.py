"""The protocol with a worker: one JSON object per line, arrays as base64 of zlib'd little-endian int64.

Requests carry `id` and `op` (`describe`, `file`, `prepare`, `measure`, `close`). Each is answered by any number of
`{"id", "event"}` lines and then exactly one `{"id", "result"}` or `{"id", "error"}`.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax.errors import WorkerError

PROTOCOL_VERSION = 1
# A million server samples of four columns compress to about 12 MB; no valid message comes near this.
MAX_LINE_BYTES = 512 * 1024 * 1024
MAX_ARRAY_LENGTH = 200_000_000

Int64Array = npt.NDArray[np.int64]


def encode_array(values: Int64Array) -> dict[str, Any]:
    """Pack an int64 array for the pipe; level 1, because the waiting side is idle and the pipe is local."""
    raw = np.ascontiguousarray(values, dtype="<i8").tobytes()
    return {"int64": base64.b64encode(zlib.compress(raw, 1)).decode("ascii"), "length": len(values)}


def decode_array(packed: Any) -> Int64Array:
    """Unpack an array packed by `encode_array`; anything else is a WorkerError."""
    try:
        length = int(packed["length"])
        if not 0 <= length <= MAX_ARRAY_LENGTH:
            raise ValueError(f"length {length}")
        # The limit on the output keeps a small hostile message from filling the memory.
        raw = zlib.decompressobj().decompress(base64.b64decode(packed["int64"], validate=True), length * 8 + 1)
        if len(raw) != length * 8:
            raise ValueError(f"{len(raw)} bytes for {length} numbers")
    except (TypeError, KeyError, ValueError, binascii.Error, zlib.error) as error:
        raise WorkerError(f"the worker sent an array that cannot be decoded: {error}") from error
    return np.frombuffer(raw, dtype="<i8").astype(np.int64, copy=False)


def encode_message(message: dict[str, Any]) -> bytes:
    """Return the message as one line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode_message(line: bytes) -> dict[str, Any]:
    """Parse one line; raises ValueError if it is not a JSON object."""
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError("not a JSON object")
    return message
