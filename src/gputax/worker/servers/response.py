"""An HTTP/1.1 response as it arrives: status, headers, and its body in pieces, without waiting for the end."""

from __future__ import annotations

from typing import Protocol

LARGEST_HEAD = 64 * 1024
LARGEST_LINE = 1024


class NotHttp(ValueError):
    """The bytes are not an HTTP/1.1 response."""


class Body(Protocol):
    """Takes the body of a response, piece by piece."""

    def begin(self, status: int) -> None:
        """Take the status, before the first piece."""
        ...

    def feed(self, data: bytes, now_ns: int) -> None:
        """Take the next piece, and when it was there."""
        ...


class Response:
    """Parses one response; a large one is never held as a whole."""

    __slots__ = ("_body", "_buffer", "_chunk", "_chunked", "_in_body", "_left", "done", "keep", "started", "status")

    def __init__(self, body: Body) -> None:
        self._body = body
        self._buffer = b""
        self._in_body = False
        self._chunked = False
        self._left = -1
        """Bytes of the body that are missing; -1: until the connection ends."""
        self._chunk = 0
        self.status = 0
        self.keep = True
        self.started = False
        self.done = False

    def feed(self, data: bytes, now_ns: int) -> bytes:
        """Take bytes of the connection; returns what is left after the end of the response."""
        self.started = True
        if not self._in_body:
            data = self._head(self._buffer + data)
            if not self._in_body:
                self._buffer = data
                return b""
            self._buffer = b""
        if self._chunked:
            return self._chunks(data, now_ns)
        if self._left < 0:
            self._body.feed(data, now_ns)
            return b""
        piece, rest = data[: self._left], data[self._left :]
        self._left -= len(piece)
        if piece:
            self._body.feed(piece, now_ns)
        self.done = self._left == 0
        return rest

    def end(self) -> None:
        """The connection ended: that is the end of a body without a length, and a cut of any other."""
        if self._in_body and not self._chunked and self._left < 0:
            self.done = True
            self.keep = False

    def _head(self, data: bytes) -> bytes:
        while True:
            if not data.startswith(b"HTTP/1."[: len(data)]):
                raise NotHttp(data[:40].decode("latin-1"))
            end = data.find(b"\r\n\r\n")
            if end < 0:
                if len(data) > LARGEST_HEAD:
                    raise NotHttp("headers without an end")
                return data
            head, data = data[:end].lower(), data[end + 4 :]
            try:
                self.status = int(head[9:12])
            except ValueError as error:
                raise NotHttp(head[:40].decode("latin-1")) from error
            if self.status >= 200:  # a 1xx comes before the response
                break
        self._read_headers(head)
        self._body.begin(self.status)
        self._in_body = True
        self.done = self._left == 0
        return data

    def _read_headers(self, head: bytes) -> None:
        self.keep = not head.startswith(b"http/1.0")
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            value = value.strip()
            if name == b"content-length":
                if not value.isdigit():
                    raise NotHttp("content-length is not a number")
                self._left = int(value)
            elif name == b"transfer-encoding" and value.endswith(b"chunked"):
                self._chunked = True
            elif name == b"connection":
                self.keep = value != b"close"
        if self._chunked:
            self._left = -1
        elif self.status in (204, 304):
            self._left = 0

    def _chunks(self, data: bytes, now_ns: int) -> bytes:
        """Decode chunks; `_chunk` is what is missing of the current one, with its line end."""
        data = self._buffer + data
        self._buffer = b""
        while data:
            if self._chunk > 2:
                piece = data[: self._chunk - 2]
                self._body.feed(piece, now_ns)
                self._chunk -= len(piece)
                data = data[len(piece) :]
            elif self._chunk:
                taken = min(self._chunk, len(data))
                self._chunk -= taken
                data = data[taken:]
            else:
                line, found, rest = data.partition(b"\r\n")
                if not found:
                    if len(line) > LARGEST_LINE:
                        raise NotHttp("a chunk without a length")
                    self._buffer = data
                    return b""
                try:
                    size = int(line.split(b";")[0], 16)
                except ValueError as error:
                    raise NotHttp("a chunk without a length") from error
                if size == 0:
                    return self._trailers(data, rest)
                self._chunk = size + 2
                data = rest
        return b""

    def _trailers(self, whole: bytes, rest: bytes) -> bytes:
        if rest.startswith(b"\r\n"):
            self.done = True
            return rest[2:]
        _, found, after = rest.partition(b"\r\n\r\n")
        if not found:
            self._buffer = whole
            return b""
        self.done = True
        return after
