"""A server with programmed delays and faults: OpenAI-style streams and the Open Inference protocol, over HTTP.

As a process: `python -m tests.standins.model_server --ttft-ms 200 --tpot-ms 20` prints its address and serves until its
stdin ends.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import ssl
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

FAULTS = (
    "", "429", "500", "cut", "slow", "garbage", "ignores-max-tokens", "no-usage", "error-event", "closes",
    "repeats-key", "empty", "not-json",
)  # fmt: skip


@dataclass(frozen=True)
class Behaviour:
    """What the server does with a request for an answer."""

    ttft_s: float = 0.0
    tpot_s: float = 0.0
    model: str = "tiny"
    fault: str = ""
    fault_every: int = 1
    """The fault happens to every n-th request, from the n-th on."""
    key: str = ""
    infer_s: float = 0.0


@dataclass
class ModelServer:
    """Serves on a port of loopback, a thread for each connection, until it is closed."""

    behaviour: Behaviour = field(default_factory=Behaviour)
    tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = int(self._listener.getsockname()[1])
        self.requests = 0
        self.seen: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> ModelServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closed = True
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                if not select.select([self._listener], [], [], 0.2)[0]:
                    continue
                connection, _ = self._listener.accept()
            except (OSError, ValueError):
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            buffer = b""
            while not self._closed:
                while b"\r\n\r\n" not in buffer:
                    data = connection.recv(65536)
                    if not data:
                        return
                    buffer += data
                    if buffer.startswith(TLS_HELLO):
                        _send(connection, 400, {"error": "this is an HTTP port"})
                        return
                head, _, buffer = buffer.partition(b"\r\n\r\n")
                length = _length(head)
                while len(buffer) < length:
                    data = connection.recv(65536)
                    if not data:
                        return
                    buffer += data
                body, buffer = buffer[:length], buffer[length:]
                if not self._answer(connection, head.decode("latin-1"), body):
                    return
        except OSError:
            return
        finally:
            connection.close()

    def _answer(self, connection: socket.socket, head: str, body: bytes) -> bool:
        """Answer one request; returns whether the connection stays."""
        if len(head.split(" ")) < 3:
            return False
        method, path, *_ = head.split(" ")
        named = [line for line in head.split("\r\n") if line.lower().startswith("authorization:")]
        key = named[0].partition(" ")[2] if named else ""
        if self.behaviour.key and key != f"Bearer {self.behaviour.key}":
            return _send(connection, 401, {"error": {"message": f"wrong key: {key}"}})
        if path.endswith("/v1/models"):
            return _send(connection, 200, {"object": "list", "data": [{"id": self.behaviour.model}]})
        if "/v2" in path:
            return self._infer(connection, method, path, body)
        if not path.endswith(("/v1/chat/completions", "/v1/completions")):
            return _send(connection, 404, {"detail": "Not Found"})
        began = time.perf_counter()
        asked = json.loads(body)
        with self._lock:
            self.requests += 1
            number = self.requests
            self.seen.append(asked)
            del self.seen[:-100]
        fault = self.behaviour.fault if number % self.behaviour.fault_every == 0 else ""
        if asked["model"] != self.behaviour.model:
            return _send(connection, 404, {"error": {"message": f"The model {asked['model']} does not exist"}})
        if fault in ("429", "500"):
            return _send(connection, int(fault), {"error": {"message": "as programmed"}})
        if fault == "repeats-key":
            return _send(connection, 400, {"error": {"message": f"cannot use {key}"}})
        if fault == "closes":
            return False
        if fault == "slow":
            time.sleep(3600)
        if not asked.get("stream"):
            self._until(began + self.behaviour.ttft_s + self.behaviour.tpot_s * (asked["max_tokens"] - 1))
            text = " word" * asked["max_tokens"]
            return _send(
                connection, 200,
                {"choices": [{"message": {"content": text}}], "usage": {"completion_tokens": asked["max_tokens"]}},
            )  # fmt: skip
        return self._stream(connection, asked, fault, began, chat=path.endswith("/chat/completions"))

    def _stream(
        self, connection: socket.socket, asked: dict[str, Any], fault: str, began: float, *, chat: bool
    ) -> bool:
        tokens = asked["max_tokens"] * (3 if fault == "ignores-max-tokens" else 1)
        connection_bytes = bytearray(HEAD)

        def out(data: bytes, *, last: bool = False) -> None:
            connection_bytes.extend(b"%x\r\n%s\r\n" % (len(data), data))
            if last:
                connection_bytes.extend(b"0\r\n\r\n")
            connection.sendall(connection_bytes)
            connection_bytes.clear()

        if fault == "garbage":
            out(b"data: {not json\n\n<html>\n", last=True)
            return True
        if fault == "not-json":
            out(b"data: [1, 2]\n\n", last=True)
            return True
        if fault == "error-event":
            out(b'data: {"error": {"message": "out of memory, as programmed"}}\n\n', last=True)
            return True
        if fault == "empty":
            out(b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n', last=True)
            return True
        waits = self.behaviour.ttft_s > 0 or self.behaviour.tpot_s > 0
        pieces = []
        for token in range(tokens):
            piece = TOKEN_CHAT if chat else TOKEN_TEXT
            if not waits:
                pieces.append(piece)
                continue
            self._until(began + self.behaviour.ttft_s + token * self.behaviour.tpot_s)
            if fault == "cut" and token == tokens // 2:
                return False
            out(piece)
        end = b"".join(pieces) + (STOP_CHAT if chat else STOP_TEXT)
        if fault == "cut":
            out(b"".join(pieces[: tokens // 2]))
            return False
        if fault != "no-usage":
            end += b'data: {"choices":[],"usage":{"completion_tokens":%d}}\n\n' % tokens
        out(end + b"data: [DONE]\n\n", last=True)
        return True

    def _infer(self, connection: socket.socket, method: str, path: str, body: bytes) -> bool:
        parts = path.strip("/").split("/")
        if parts == ["v2"]:
            return _send(connection, 200, {"name": "stand-in", "version": "1", "extensions": []})
        if parts[:2] != ["v2", "models"] or parts[2] != self.behaviour.model:
            return _send(connection, 404, {"error": f"unknown model {parts[2] if len(parts) > 2 else ''}"})
        if method == "GET":
            return _send(connection, 200, METADATA | {"name": self.behaviour.model})
        with self._lock:
            self.requests += 1
            number = self.requests
        fault = self.behaviour.fault if number % self.behaviour.fault_every == 0 else ""
        if fault in ("429", "500"):
            return _send(connection, int(fault), {"error": "as programmed"})
        if fault == "closes":
            return False
        began = time.perf_counter()
        asked = json.loads(body)
        (tensor,) = asked["inputs"]
        count = 1
        for side in tensor["shape"]:
            count *= side
        if tensor["name"] != "x" or tensor["datatype"] != "FP32" or len(tensor["data"]) != count:
            return _send(connection, 400, {"error": "input x of 1x4 FP32 expected"})
        self._until(began + self.behaviour.infer_s)
        output = {"name": "y", "shape": [1, 1], "datatype": "FP32", "data": [sum(tensor["data"])]}
        return _send(connection, 200, {"model_name": self.behaviour.model, "outputs": [output]})

    @staticmethod
    def _until(moment_s: float) -> None:
        left = moment_s - time.perf_counter()
        if left > 0:
            time.sleep(left)


METADATA = {
    "versions": ["1"],
    "platform": "stand-in",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 1]}],
}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKEN_CHAT = b'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" word"}}]}\n\n'
TOKEN_TEXT = b'data: {"object":"text_completion","choices":[{"index":0,"text":" word"}]}\n\n'
STOP_CHAT = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}\n\n'
STOP_TEXT = b'data: {"choices":[{"index":0,"text":"","finish_reason":"length"}]}\n\n'
TLS_HELLO = b"\x16\x03"
REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def _send(connection: socket.socket, status: int, data: dict[str, Any]) -> bool:
    body = json.dumps(data).encode()
    reason = REASONS.get(status, "Error")
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return True


def main() -> None:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ttft-ms", type=float, default=0.0)
    parser.add_argument("--tpot-ms", type=float, default=0.0)
    parser.add_argument("--infer-ms", type=float, default=0.0)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--fault", choices=FAULTS, default="")
    parser.add_argument("--fault-every", type=int, default=1)
    parser.add_argument("--key", default="")
    asked = parser.parse_args()
    behaviour = Behaviour(
        asked.ttft_ms / 1000, asked.tpot_ms / 1000, asked.model, asked.fault, asked.fault_every, asked.key,
        asked.infer_ms / 1000,
    )  # fmt: skip
    with ModelServer(behaviour) as server:
        print(server.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
