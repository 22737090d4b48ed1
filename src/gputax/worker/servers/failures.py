"""What can go wrong with a request, as the numbers of the column `status`, and the words for each of them."""

from __future__ import annotations

import http
import re

OK = 0
REFUSED, CUT, TIMED_OUT, TLS, GARBAGE, EMPTY, REPORTED = range(1, 8)
GRPC = 1000
"""A gRPC status is stored with this added."""
WORDS = {
    REFUSED: "connection refused",
    CUT: "connection closed in the middle of the response",
    TIMED_OUT: "no complete response in time",
    TLS: "TLS failed",
    GARBAGE: "the response is not what the protocol says",
    EMPTY: "a complete response without a single token",
    REPORTED: "the server reported an error inside the stream",
}
GRPC_NAMES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip


def words_for(status: int) -> str:
    """Return what a status means."""
    if status in WORDS:
        return WORDS[status]
    if status >= GRPC:
        code = status - GRPC
        return f"gRPC {GRPC_NAMES[code] if code < len(GRPC_NAMES) else code}"
    try:
        return f"HTTP {status} {http.HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"


_BEARER = re.compile(r"(?i)(bearer\s+)\S+")


def redacted(text: str, secret: str) -> str:
    """Return a text without the key: servers like to repeat what they refuse."""
    shown = text.replace(secret, "***") if len(secret) >= 4 else text
    return _BEARER.sub(r"\1***", shown)
