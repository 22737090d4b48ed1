"""A tenant's metrics for Prometheus, and the small server that exposes them."""

from __future__ import annotations

import errno
import os
import select
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from gputax.errors import PreflightError
from gputax.worker.halt import Halt
from gputax.worker.tenant.info import ADDRESS_VARIABLE, PORT_VARIABLE
from gputax.worker.tenant.tally import BOUNDS_NS, Counts, Tally

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

EVERY_ADDRESS = "0.0.0.0"
# A client that connects and sends nothing blocks a thread no longer than this.
SILENT_CLIENT_S = 10
_LE = [repr(bound_ns / 1e9) for bound_ns in BOUNDS_NS] + ["+Inf"]


class TenantMetrics(Collector):
    """The metrics of this tenant, in their own registry: two tenants may share one process."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.ready = False
        """Loaded and warm: what is counted from now on is the tenant's speed."""
        self._labels: Mapping[str, str] = {}
        self.registry = CollectorRegistry(auto_describe=True)
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def introduce(self, labels: Mapping[str, str]) -> None:
        """Set the tenant's labels, once its engine has reported what it uses."""
        self._labels = dict(labels)

    def collect(self) -> Iterator[Metric]:
        """Yield a consistent snapshot of all metrics."""
        counts = self.tally.counts()
        on = f" On {self._labels.get('device_label', 'a device that is not known yet')}."
        yield HistogramMetricFamily(
            "inference_time_seconds",
            "Time of one run of the model, a whole batch, until the device was done; warm-up runs are not in it;"
            f" with arrivals at a rate it counts from the scheduled arrival.{on}",
            buckets=list(_cumulated(counts)),
            sum_value=counts.sum_ns / 1e9,
        )
        yield CounterMetricFamily(
            "inferences", f"Inferences done: a run of batch 8 is eight of them.{on}", counts.inferences
        )
        yield CounterMetricFamily("inference_errors", f"Runs of the model that failed.{on}", counts.errors)
        if self.tally.target_ns:
            yield CounterMetricFamily(
                "inferences_within_target",
                f"Inferences done within inference_target_seconds: the goodput.{on}",
                counts.within_target,
            )
            yield GaugeMetricFamily(
                "inference_target_seconds", "The time that counts as good enough.", self.tally.target_ns / 1e9
            )
        if self._labels:
            yield InfoMetricFamily(
                "gputax_tenant", "Who this tenant is, on which device and within which limits.", dict(self._labels)
            )


def _cumulated(counts: Counts) -> Iterator[tuple[str, float]]:
    total = 0
    for le, runs in zip(_LE, counts.buckets, strict=True):
        total += runs
        yield le, total


class MetricsServer:
    """Answers scrapes on its own threads, from construction until `close`."""

    def __init__(self, metrics: TenantMetrics, address: str, port: int, *, setting: str = "--port") -> None:
        try:
            family, _, _, _, place = socket.getaddrinfo(
                address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            self._server = _Server(family, place)
        except (OSError, OverflowError) as error:
            raise _no_server(address, port, error, setting) from error
        self._server.set_app(_application(metrics))
        self.port = int(self._server.server_address[1])
        self.url = f"http://{f'[{address}]' if ':' in address else address}:{self.port}/metrics"
        self._halt = Halt()
        self._thread = threading.Thread(target=self._serve, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._halt.order()
        self._thread.join()
        self._server.server_close()
        self._halt.close()

    def _serve(self) -> None:
        # Not `serve_forever`, which wakes up twice a second during the measurement.
        while not self._halt.ordered:
            select.select([self._server.fileno(), self._halt.fileno()], [], [])
            if not self._halt.ordered:
                self._server.handle_request()


def server_from_variables(metrics: TenantMetrics, environ: Mapping[str, str] = os.environ) -> MetricsServer | None:
    """Serve at the address in the variables; None if they have no port."""
    text = environ.get(PORT_VARIABLE, "")
    if not text:
        return None
    if not text.isdigit() or int(text) > 65535:
        raise PreflightError(f"{PORT_VARIABLE}={text} is not a port", next_step=f"e.g. {PORT_VARIABLE}=8000")
    address = environ.get(ADDRESS_VARIABLE) or EVERY_ADDRESS
    return MetricsServer(metrics, address, int(text), setting=PORT_VARIABLE)


def _no_server(address: str, port: int, error: Exception, setting: str) -> PreflightError:
    where = f"{address}, port {port}"
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return PreflightError(
            f"the port for metrics is in use: {port}",
            where=where,
            next_step=f"choose another with {setting} (0: any free one), or find its owner: ss -ltnp 'sport = :{port}'",
        )
    return PreflightError(
        f"metrics cannot be served: {error}", where=where, next_step=f"choose another address, or another {setting}"
    )


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    """One short-lived thread for each scrape, so that a slow client does not block others."""

    daemon_threads = True
    timeout = 0
    """Do not wait for a client that disconnected before it was accepted."""

    def __init__(self, family: int, place: Any) -> None:
        self.address_family = family
        super().__init__(place, _Handler)

    def server_bind(self) -> None:
        """Bind without asking the name service for our own name, which can take seconds in a pod."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = (str(self.server_address[0]), int(self.server_address[1]))
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore disconnected clients; anything else is a bug."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(WSGIRequestHandler):
    timeout = SILENT_CLIENT_S

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log scrapes."""


def _application(metrics: TenantMetrics) -> WSGIApplication:
    exposition: WSGIApplication = make_wsgi_app(metrics.registry)
    answers: dict[str, Callable[[], tuple[str, str]]] = {
        "/": lambda: ("200 OK", "gputax tenant: see /metrics\n"),
        "/healthz": lambda: ("200 OK", "ok\n"),
        "/readyz": lambda: ("200 OK", "ok\n") if metrics.ready else ("503 Service Unavailable", "not warm yet\n"),
    }

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            return exposition(environ, start_response)
        status, text = answers.get(path, lambda: ("404 Not Found", "see /metrics\n"))()
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [text.encode()]

    return answer
