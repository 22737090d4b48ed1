"""The users' query against a server that answers as Prometheus does; the real one is in tests/e2e."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from gputax.measure.share.cross_check import cross_check, silence
from gputax.plan.notices import Notice
from gputax.results.documents.sharing import CrossCheck

Answer = Callable[[str], float | None]


class Prometheus:
    """Answers instant queries with what `answer` says of each."""

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.times: list[float] = []
        self.answer: Answer = lambda query: None
        self.body: bytes | None = None
        self.code = 200
        prometheus = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = parse_qs(urlsplit(self.path).query)
                prometheus.queries.append(asked["query"][0])
                prometheus.times.append(float(asked["time"][0]))
                value = prometheus.answer(asked["query"][0])
                result = [] if value is None else [{"metric": {}, "value": [0, str(value)]}]
                body = prometheus.body or json.dumps({"status": "success", "data": {"result": result}}).encode()
                self.send_response(prometheus.code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/"
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()


@pytest.fixture
def prometheus() -> Iterator[Prometheus]:
    made = Prometheus()
    yield made
    made.http.shutdown()
    made.http.server_close()


def busy(count: float, mean_s: float, label: str = "pod") -> Answer:
    """Answer as one whose scrapes carry the pod's name under this label."""

    def answer(query: str) -> float | None:
        if "{" in query and f"{{{label}=~" not in query:
            return None
        return count if query.startswith("count(") else mean_s

    return answer


def asked(prometheus: Prometheus, **changes: Any) -> CrossCheck | Notice:
    options: dict[str, Any] = {"pods": ("t-1", "t-2", "t-3"), **changes}
    return cross_check(prometheus.url, 10.9, "mps", 3, 200.0, **options)


def test_the_users_query_is_asked_over_the_window_and_for_this_run_s_pods(prometheus: Prometheus) -> None:
    prometheus.answer = busy(3, 0.204)
    found = asked(prometheus, ended_s=1_000_000.5)
    assert isinstance(found, CrossCheck)
    assert found.query == (
        'avg(sum(rate(inference_time_seconds_sum{pod=~"t-1|t-2|t-3"}[10s])) '
        '/ sum(rate(inference_time_seconds_count{pod=~"t-1|t-2|t-3"}[10s])))'
    )
    assert found.prometheus_ms == pytest.approx(204.0)
    assert (found.ours_ms, found.difference_percent) == (200.0, pytest.approx(2.0))
    assert set(prometheus.times) == {1_000_000.5}


def test_without_labels_the_number_of_busy_clients_must_be_that_of_the_tenants(prometheus: Prometheus) -> None:
    prometheus.answer = busy(3, 0.2, label="none")
    found = asked(prometheus, pods=())
    assert isinstance(found, CrossCheck)
    assert "{" not in found.query
    prometheus.answer = busy(5, 0.2, label="none")
    other = asked(prometheus, pods=())
    assert isinstance(other, Notice)
    assert other.text == "Prometheus saw 5 busy clients, mps had 3 tenants: not compared"


def test_a_label_that_prometheus_renamed_is_found(prometheus: Prometheus) -> None:
    prometheus.answer = busy(3, 0.2, label="exported_pod")
    found = asked(prometheus)
    assert isinstance(found, CrossCheck)
    assert "exported_pod" in found.query


def test_tenants_that_were_not_scraped_are_not_compared(prometheus: Prometheus) -> None:
    prometheus.answer = lambda query: None
    found = asked(prometheus)
    assert isinstance(found, Notice)
    assert "saw 0 busy clients" in found.text


@pytest.mark.parametrize(
    ("code", "body", "why"),
    [
        (400, b'{"status": "error", "error": "parse error: x"}', "it returned 400: parse error: x"),
        (502, b"bad gateway", "it returned 502: bad gateway"),
        (200, b"<html>", "cannot be parsed"),
        (200, b'{"data": {}}', "cannot be parsed"),
    ],
)
def test_an_answer_that_is_none_is_a_notice(prometheus: Prometheus, code: int, body: bytes, why: str) -> None:
    prometheus.code, prometheus.body = code, body
    found = asked(prometheus)
    assert isinstance(found, Notice)
    assert why in found.text


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "localhost:9090", "file:///etc/hostname"])
def test_a_prometheus_that_is_not_there_is_a_notice(url: str) -> None:
    found = cross_check(url, 10.0, "mps", 3, 200.0)
    assert isinstance(found, Notice)
    assert "did not answer" in found.text
    silent = silence(url)
    assert silent is not None
    assert "did not answer" in silent.text


def test_without_a_figure_of_our_own_nobody_is_asked(prometheus: Prometheus) -> None:
    assert isinstance(cross_check(prometheus.url, 10.0, "mps", 3, None), Notice)
    assert prometheus.queries == []
