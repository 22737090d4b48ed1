"""Requests over gRPC: unary calls on one channel; their answers come on the library's own thread."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import grpc

from gputax.plan.servers import ServerAddress
from gputax.worker.servers.exchange import Answer
from gputax.worker.servers.failures import GRPC, REFUSED, TIMED_OUT, TLS

METHOD = "ModelInfer"
LONGEST_MESSAGE = 256 << 20
# A timed wait for a queue returns up to a tenth of a millisecond late; the rest is polled.
POLLED_NS = 150_000


class GrpcExchange:
    """All calls to one server; a request is bytes, and so is a response."""

    def __init__(
        self, address: ServerAddress, service: str, requests: Sequence[bytes], *, timeout_s: float, secret: str = ""
    ) -> None:
        self._timeout_s = timeout_s
        self._requests = requests
        self._metadata = (("authorization", f"Bearer {secret}"),) if secret else ()
        self.channel = channel_to(address)
        self._call = self.channel.unary_unary(f"{service}/{METHOD}")
        self._ended: SimpleQueue[Answer] = SimpleQueue()

    def start(self, row: int, index: int) -> None:
        """Send a request."""
        sent_ns = time.perf_counter_ns()
        future = self._call.future(self._requests[index], timeout=self._timeout_s, metadata=self._metadata)
        put = self._ended.put
        future.add_done_callback(lambda done: put(answer_of(done, row, sent_ns, time.perf_counter_ns())))

    def wait(self, until_ns: int) -> Sequence[Answer]:
        """Wait for answers, until a time at the latest."""
        get, clock = self._ended.get, time.perf_counter_ns
        while True:
            left_ns = until_ns - clock()
            try:
                first = get(timeout=min(1.0, (left_ns - POLLED_NS) / 1e9)) if left_ns > POLLED_NS else get(block=False)
            except Empty:
                if left_ns <= 0:
                    return ()
                continue
            return [first, *(self._ended.get() for _ in range(self._ended.qsize()))]

    def close(self) -> None:
        """End the channel; calls in flight are cancelled."""
        self.channel.close()


def channel_to(address: ServerAddress) -> Any:
    """Return a channel; proxies of the environment are for other networks."""
    options = [
        ("grpc.enable_http_proxy", 0),
        ("grpc.max_receive_message_length", LONGEST_MESSAGE),
        ("grpc.max_send_message_length", LONGEST_MESSAGE),
    ]
    if not address.secure:
        return grpc.insecure_channel(address.target, options=options)
    roots = os.environ.get("SSL_CERT_FILE", "")
    certificates = Path(roots).read_bytes() if roots else None
    return grpc.secure_channel(address.target, grpc.ssl_channel_credentials(certificates), options=options)


def called(channel: Any, service: str, method: str, request: bytes, *, timeout_s: float, secret: str) -> Any:
    """Make one call and return its answer; the response's bytes or the failure."""
    metadata = (("authorization", f"Bearer {secret}"),) if secret else ()
    sent_ns = time.perf_counter_ns()
    try:
        return channel.unary_unary(f"{service}/{method}")(request, timeout=timeout_s, metadata=metadata)
    except grpc.RpcError as error:
        return failed(error, 0, sent_ns, time.perf_counter_ns())


def answer_of(done: Any, row: int, sent_ns: int, end_ns: int) -> Answer:
    """Return the answer of a call that has ended."""
    if done.cancelled() or done.code() is not grpc.StatusCode.OK:
        return failed(done, row, sent_ns, end_ns)
    return Answer(row, sent_ns, end_ns, 0)


def failed(error: Any, row: int, sent_ns: int, end_ns: int) -> Answer:
    """Return a failed call; what gRPC calls unavailable is told apart by its words."""
    code, detail = error.code(), str(error.details() or "")
    status = GRPC + int(code.value[0])
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        status = TIMED_OUT
    elif code is grpc.StatusCode.UNAVAILABLE and "refused" in detail.lower():
        status = REFUSED
    elif code is grpc.StatusCode.UNAVAILABLE and ("ssl" in detail.lower() or "handshak" in detail.lower()):
        status = TLS
    return Answer(row, sent_ns, end_ns, status, detail=detail)
