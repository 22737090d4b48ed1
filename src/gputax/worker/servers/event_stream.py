"""A stream of server-sent events (or one JSON document) from an OpenAI-style server, as tokens with their times."""

from __future__ import annotations

import json
from typing import Any

from gputax.worker.servers.failures import CUT, EMPTY, GARBAGE, OK, REPORTED

LONGEST_DETAIL = 300
_LEFT_OUT = b" ... "
LARGEST_EVENT = 4 << 20
DONE = b"[DONE]"
# The parts of a message that are generated tokens; a model that thinks sends that first.
CONTENT = ("content", "reasoning_content", "reasoning", "text")


def shortened(text: bytes) -> bytes:
    """Return the beginning and the end of a long text: a server that answers with a traceback has its words last."""
    half = LONGEST_DETAIL // 2
    return text if len(text) <= LONGEST_DETAIL + len(_LEFT_OUT) else text[:half] + _LEFT_OUT + text[-half:]


class EventStream:
    """Takes the body of one response."""

    __slots__ = ("_error", "_finished", "_line", "_raw", "garbage", "status", "times_ns", "tokens", "usage")

    def __init__(self) -> None:
        self.status = 0
        self.tokens = 0
        self.usage: int | None = None
        """The tokens as the server counted them; None if it did not."""
        self.times_ns: list[int] = []
        self.garbage = ""
        self._line = b""
        self._raw = b""
        self._finished = False
        self._error = ""

    def begin(self, status: int) -> None:
        """Take the status of the response."""
        self.status = status

    def feed(self, data: bytes, now_ns: int) -> None:
        """Take a piece of the body: lines that begin with `data:` are events."""
        if self.status != 200:
            self._raw = shortened(self._raw + data)
            return
        lines = (self._line + data).split(b"\n")
        self._line = lines.pop()
        if len(self._line) > LARGEST_EVENT:
            self.garbage = self.garbage or "an event without an end"
            self._line = b""
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), now_ns)
            elif line.strip() and not line.startswith((b":", b"event:", b"id:", b"retry:")):
                self.garbage = self.garbage or line[:80].decode("utf-8", "replace")

    def _event(self, data: bytes, now_ns: int) -> None:
        if data == DONE:
            self._finished = True
            return
        try:
            event = json.loads(data)
            error = event.get("error")
            if error:
                self._error = str(error.get("message", error) if isinstance(error, dict) else error)
                return
            usage = event.get("usage")
            if usage:
                self.usage = int(usage["completion_tokens"])
            choices = event.get("choices")
            if choices:
                self._choice(choices[0], now_ns)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
            self.garbage = self.garbage or data[:80].decode("utf-8", "replace")

    def _choice(self, choice: dict[str, Any], now_ns: int) -> None:
        part = choice.get("delta") or choice
        for name in CONTENT:
            if part.get(name):
                self.times_ns.append(now_ns)
                break
        if choice.get("finish_reason"):
            self._finished = True

    def finish(self) -> int:
        """Return how the request ended, once the body is complete."""
        self.tokens = self.usage if self.usage is not None else len(self.times_ns)
        if self.status != 200:
            return self.status or GARBAGE
        if self._error:
            return REPORTED
        if self.garbage or self._line.strip():
            return GARBAGE
        if not self._finished:
            return CUT
        return OK if self.times_ns else EMPTY

    @property
    def detail(self) -> str:
        """What the server said, of a failure."""
        if self.status != 200:
            return self._raw.decode("utf-8", "replace")
        return self._error or self.garbage or self._line[:80].decode("utf-8", "replace")


class Document:
    """Takes a body that is one JSON document: an answer without a stream, or a list of models."""

    __slots__ = ("_body", "data", "detail_text", "status", "times_ns", "tokens")

    def __init__(self) -> None:
        self.status = 0
        self.tokens = 0
        self.times_ns: list[int] = []
        self._body = b""
        self.data: Any = None
        self.detail_text = ""

    def begin(self, status: int) -> None:
        """Take the status of the response."""
        self.status = status

    def feed(self, data: bytes, now_ns: int) -> None:
        """Take a piece of the body."""
        self._body += data

    def finish(self) -> int:
        """Parse it."""
        if self.status != 200:
            self.detail_text = shortened(self._body).decode("utf-8", "replace")
            return self.status or GARBAGE
        try:
            self.data = json.loads(self._body)
        except (ValueError, RecursionError):
            self.detail_text = self._body[:80].decode("utf-8", "replace")
            return GARBAGE
        if isinstance(self.data, dict) and isinstance(self.data.get("usage"), dict):
            count = self.data["usage"].get("completion_tokens")
            self.tokens = count if isinstance(count, int) else 0
        return OK

    @property
    def detail(self) -> str:
        """What the server said, of a failure."""
        return self.detail_text


class Accepted:
    """Takes a body that does not matter: only whether the server said 200."""

    __slots__ = ("_raw", "status", "times_ns", "tokens")

    def __init__(self) -> None:
        self.status = 0
        self.tokens = 0
        self.times_ns: list[int] = []
        self._raw = b""

    def begin(self, status: int) -> None:
        """Take the status of the response."""
        self.status = status

    def feed(self, data: bytes, now_ns: int) -> None:
        """Keep the beginning and the end of a failure's text."""
        if self.status != 200:
            self._raw = shortened(self._raw + data)

    def finish(self) -> int:
        """Return how the request ended."""
        return OK if self.status == 200 else self.status or GARBAGE

    @property
    def detail(self) -> str:
        """What the server said, of a failure."""
        return self._raw.decode("utf-8", "replace")
