"""Requests over HTTP/1.1 by one thread and one epoll, on connections that are kept: thousands of them per second."""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gputax.errors import PreflightError, WorkerError
from gputax.plan.servers import ServerAddress
from gputax.worker.servers import failures
from gputax.worker.servers.exchange import Answer
from gputax.worker.servers.response import Body, NotHttp, Response
from gputax.worker.servers.timer import Timer

READ, WRITE, ENDED = select.EPOLLIN, select.EPOLLOUT, select.EPOLLERR | select.EPOLLHUP
PIECE = 65536
LONGEST_WAIT_S = 5.0
NEVER_NS = 10**18
_WANTS = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError)


class Reader(Body, Protocol):
    """A body that knows what its response says."""

    status: int
    tokens: int
    times_ns: list[int]

    def finish(self) -> int:
        """Return the status of the whole request, once the body is complete."""
        ...

    @property
    def detail(self) -> str:
        """What the server said, of a failure."""
        ...


@dataclass(frozen=True)
class Wire:
    """How a request looks on a connection."""

    data: bytes
    reader: Callable[[], Reader]


class _Connection:
    __slots__ = ("out", "reader", "response", "reused", "row", "sent_ns", "socket", "state", "watched", "wire")

    def __init__(self, sock: socket.socket, state: str) -> None:
        self.socket = sock
        self.state = state
        """connecting, handshake, busy or idle."""
        self.reused = False
        self.watched = WRITE
        self.row = -1
        self.sent_ns = 0
        self.out: bytes | memoryview = b""

    def ask(self, row: int, wire: Wire, sent_ns: int) -> None:
        self.row, self.wire, self.sent_ns = row, wire, sent_ns
        self.reader = wire.reader()
        self.response = Response(self.reader)
        self.out = wire.data


class HttpExchange:
    """All connections to one server."""

    def __init__(
        self,
        address: ServerAddress,
        wires: Sequence[Wire],
        *,
        timeout_s: float,
        insecure: bool = False,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._address, self._wires = address, wires
        self._timeout_ns = int(timeout_s * 1e9)
        self._clock = clock
        self._peers = _resolved(address)
        self._context = tls_context(insecure) if address.secure else None
        self._epoll = select.epoll()
        self._timer = Timer()
        self._epoll.register(self._timer.descriptor, READ | select.EPOLLET)
        self._connections: dict[int, _Connection] = {}
        self._idle: list[_Connection] = []
        self._busy: dict[int, _Connection] = {}
        """By row, oldest first."""
        self._ended: list[Answer] = []

    def start(self, row: int, index: int) -> None:
        """Send a request on an idle connection, or on a new one."""
        self._begin(row, self._wires[index], self._clock())

    def _begin(self, row: int, wire: Wire, sent_ns: int, *, fresh: bool = False) -> None:
        if self._idle and not fresh:
            connection = self._idle.pop()
            connection.reused = True
            connection.state = "busy"
            connection.ask(row, wire, sent_ns)
            self._busy[row] = connection
            self._send(connection)
            return
        try:
            connection = self._connected()
        except OSError as error:
            self._ended.append(
                Answer(row, sent_ns, self._clock(), failures.REFUSED, detail=error.strerror or str(error))
            )
            return
        connection.ask(row, wire, sent_ns)
        self._busy[row] = connection

    def _connected(self) -> _Connection:
        """Begin a connection; nothing here waits."""
        family, peer = self._peers
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = sock.connect_ex(peer)
        if code not in (0, errno.EINPROGRESS):
            sock.close()
            raise OSError(code, os.strerror(code))
        connection = _Connection(sock, "connecting")
        self._connections[sock.fileno()] = connection
        self._epoll.register(sock.fileno(), WRITE)
        return connection

    def wait(self, until_ns: int) -> Sequence[Answer]:
        """Wait for answers, until a time at the latest; a request that takes too long ends as one that failed."""
        if not self._ended:
            if not self._busy and until_ns >= NEVER_NS:
                raise WorkerError("waiting for an answer although no request is in flight", where=self._address.text)
            self._poll(min(until_ns, self._first_deadline_ns()))
            self._end_overdue()
        ended, self._ended = self._ended, []
        return ended

    def _first_deadline_ns(self) -> int:
        for connection in self._busy.values():
            return connection.sent_ns + self._timeout_ns
        return 2**62

    def _end_overdue(self) -> None:
        now_ns = self._clock()
        while self._busy and self._first_deadline_ns() <= now_ns:
            oldest = next(iter(self._busy.values()))
            shaking = oldest.state == "handshake"
            self._fail(oldest, failures.TLS if shaking else failures.TIMED_OUT, "no answer" if shaking else "")

    def _poll(self, until_ns: int) -> None:
        left_ns = until_ns - self._clock()
        if left_ns > 0:
            self._timer.set(until_ns)
        # The timer rings to the microsecond; the time limit is there if it ever did not.
        for descriptor, event in self._epoll.poll(min(left_ns / 1e9 + 0.001, LONGEST_WAIT_S) if left_ns > 0 else 0):
            connection = self._connections.get(descriptor)
            if connection is not None:
                self._advance(connection, event)

    def _advance(self, connection: _Connection, event: int) -> None:
        try:
            if connection.state == "connecting":
                self._connect(connection)
            elif connection.state == "handshake":
                self._shake(connection)
            elif connection.state == "idle":
                self._drop(connection)
                self._idle.remove(connection)
            elif event & WRITE:
                self._send(connection)
            else:
                self._receive(connection)
        except ssl.SSLError as error:
            self._fail(connection, failures.TLS, str(error.reason or error))
        except OSError as error:
            self._lost(connection, error.strerror or str(error))

    def _connect(self, connection: _Connection) -> None:
        code = connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._fail(connection, failures.REFUSED, os.strerror(code))
            return
        if self._context is None:
            connection.state = "busy"
            self._send(connection)
            return
        descriptor = connection.socket.fileno()
        self._epoll.unregister(descriptor)
        connection.socket = self._context.wrap_socket(
            connection.socket, server_hostname=self._address.host, do_handshake_on_connect=False
        )
        connection.state = "handshake"
        self._epoll.register(connection.socket.fileno(), WRITE)
        connection.watched = WRITE
        self._connections[connection.socket.fileno()] = connection
        self._shake(connection)

    def _shake(self, connection: _Connection) -> None:
        assert isinstance(connection.socket, ssl.SSLSocket)
        try:
            connection.socket.do_handshake()
        except ssl.SSLWantReadError:
            self._watch(connection, READ)
            return
        except ssl.SSLWantWriteError:
            self._watch(connection, WRITE)
            return
        connection.state = "busy"
        self._send(connection)

    def _send(self, connection: _Connection) -> None:
        try:
            sent = connection.socket.send(connection.out)
        except _WANTS:
            self._watch(connection, WRITE)
            return
        except OSError as error:
            self._lost(connection, error.strerror or str(error))
            return
        if sent < len(connection.out):
            connection.out = memoryview(connection.out)[sent:]
            self._watch(connection, WRITE)
            return
        connection.out = b""
        self._watch(connection, READ)

    def _watch(self, connection: _Connection, events: int) -> None:
        if connection.watched != events:
            self._epoll.modify(connection.socket.fileno(), events)
            connection.watched = events

    def _receive(self, connection: _Connection) -> None:
        while True:
            try:
                data = connection.socket.recv(PIECE)
            except _WANTS:
                return
            now_ns = self._clock()
            if not data:
                self._closed(connection, now_ns)
                return
            try:
                connection.response.feed(data, now_ns)
            except NotHttp as error:
                self._fail(connection, failures.GARBAGE, f"not an HTTP/1.1 response: {str(error)!r}")
                return
            if connection.response.done:
                self._finish(connection, now_ns)
                return
            # TLS may hold more than the socket shows; a plain socket rings again.
            if self._context is None:
                return

    def _finish(self, connection: _Connection, now_ns: int) -> None:
        reader, response = connection.reader, connection.response
        del self._busy[connection.row]
        self._ended.append(_answer(connection, now_ns, reader.finish()))
        if response.keep:
            connection.state = "idle"
            self._idle.append(connection)
        else:
            self._drop(connection)

    def _closed(self, connection: _Connection, now_ns: int) -> None:
        connection.response.end()
        if connection.response.done:
            self._finish(connection, now_ns)
        else:
            self._lost(connection, "")

    def _lost(self, connection: _Connection, why: str) -> None:
        """A kept connection that the server had closed meanwhile is not a failure: the request is sent again."""
        if connection.state == "idle":
            self._drop(connection)
            self._idle.remove(connection)
            return
        if connection.reused and connection.state == "busy" and not connection.response.started:
            self._drop(connection)
            del self._busy[connection.row]
            self._begin(connection.row, connection.wire, connection.sent_ns, fresh=True)
            return
        self._fail(connection, failures.CUT, why)

    def _fail(self, connection: _Connection, status: int, detail: str) -> None:
        self._busy.pop(connection.row, None)
        self._ended.append(_answer(connection, self._clock(), status, detail))
        self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        self._connections.pop(connection.socket.fileno(), None)
        connection.socket.close()

    def close(self) -> None:
        """End all connections."""
        for connection in list(self._connections.values()):
            self._drop(connection)
        self._idle.clear()
        self._busy.clear()
        self._timer.close()
        self._epoll.close()


def _answer(connection: _Connection, end_ns: int, status: int, detail: str = "") -> Answer:
    reader = connection.reader
    return Answer(
        connection.row, connection.sent_ns, end_ns, status, reader.tokens, reader.times_ns,
        detail or (reader.detail if status else ""),
    )  # fmt: skip


def _resolved(address: ServerAddress) -> tuple[int, tuple[object, ...]]:
    """Return the family and the peer; names are resolved once, so that no request waits for it."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise PreflightError(
            f"the name {address.host} cannot be resolved: {error.strerror or error}",
            where=address.text,
            next_step=f"check the name: getent hosts {address.host}",
        ) from error
    family, _, _, _, peer = found[0]
    return int(family), peer


def tls_context(insecure: bool) -> ssl.SSLContext:
    """Return the settings of TLS: certificates are checked, unless the user says otherwise."""
    context = ssl.create_default_context()
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
