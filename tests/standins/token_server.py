"""A loopback server that speaks the OpenAI protocol and sends every token at a known time.

The fixtures in `tests/unit/results/token_tools` were made against it: `python -m tests.standins.token_server 8765`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Schedule:
    """When the tokens of a response leave, counted from the arrival of the request."""

    first_ms: float = 200.0
    gap_ms: float = 20.0
    long_gap_ms: float = 120.0
    """The gap in the middle: it separates the single gaps from their mean."""
    tokens: int = 16

    @property
    def gaps_ms(self) -> list[float]:
        """Every gap between two tokens."""
        gaps = [self.gap_ms] * (self.tokens - 1)
        gaps[len(gaps) // 2] = self.long_gap_ms
        return gaps

    @property
    def at_ms(self) -> list[float]:
        """When each token leaves."""
        times = [self.first_ms]
        for gap in self.gaps_ms:
            times.append(times[-1] + gap)
        return times

    @property
    def per_token_ms(self) -> float:
        """The time per output token without the first."""
        return sum(self.gaps_ms) / (self.tokens - 1)

    @property
    def per_token_with_first_ms(self) -> float:
        """The time per output token with the first."""
        return self.at_ms[-1] / self.tokens


SCHEDULE = Schedule()
MODEL = "known-delays"


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await _head(reader):
            method, path, length = head
            body = json.loads(await reader.readexactly(length)) if length else {}
            arrived = time.monotonic()
            if method == "POST" and body.get("stream"):
                await _stream(writer, path, body, arrived)
            elif method == "POST":
                await asyncio.sleep(SCHEDULE.at_ms[-1] / 1000.0)
                await _send_json(writer, _whole(path))
            else:
                await _send_json(writer, _listing(path))
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def _head(reader: asyncio.StreamReader) -> tuple[str, str, int] | None:
    request = (await reader.readline()).decode()
    if not request.strip():
        return None
    length = 0
    while line := (await reader.readline()).decode().strip():
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            length = int(value)
    method, path, _ = request.split(" ", 2)
    return method, path.partition("?")[0], length


async def _send_json(writer: asyncio.StreamWriter, data: dict[str, Any]) -> None:
    body = json.dumps(data).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


async def _stream(writer: asyncio.StreamWriter, path: str, body: dict[str, Any], arrived: float) -> None:
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    writer.write(head.encode())
    await writer.drain()
    for number, at_ms in enumerate(SCHEDULE.at_ms):
        await asyncio.sleep(max(0.0, arrived + at_ms / 1000.0 - time.monotonic()))
        last = number == SCHEDULE.tokens - 1
        await _event(writer, _chunk(path, " the", "length" if last else None))
    if body.get("stream_options", {}).get("include_usage"):
        await _event(writer, {**_chunk(path, "", None), "choices": [], "usage": _usage()})
    await _event(writer, "[DONE]")
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _event(writer: asyncio.StreamWriter, data: dict[str, Any] | str) -> None:
    text = f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
    writer.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")
    await writer.drain()


def _usage() -> dict[str, int]:
    return {"prompt_tokens": 8, "completion_tokens": SCHEDULE.tokens, "total_tokens": 8 + SCHEDULE.tokens}


def _chunk(path: str, text: str, finish: str | None) -> dict[str, Any]:
    chat = path.endswith("/chat/completions")
    said = {"delta": {"role": "assistant", "content": text}} if chat else {"text": text}
    kind = "chat.completion.chunk" if chat else "text_completion"
    choice = {"index": 0, **said, "finish_reason": finish}
    return {"id": "1", "object": kind, "created": 1, "model": MODEL, "choices": [choice]}


def _whole(path: str) -> dict[str, Any]:
    text = " the" * SCHEDULE.tokens
    chat = path.endswith("/chat/completions")
    said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    kind = "chat.completion" if chat else "text_completion"
    choice = {"index": 0, **said, "finish_reason": "length"}
    return {"id": "1", "object": kind, "created": 1, "model": MODEL, "choices": [choice], "usage": _usage()}


def _listing(path: str) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 1, "owned_by": "tests"}]}


async def serve(port: int) -> None:
    """Serve on loopback until the process ends."""
    server = await asyncio.start_server(_answer, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
