"""What a scrape over HTTP shows, read with Prometheus' own parsers."""

from __future__ import annotations

import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from gputax.errors import PreflightError
from gputax.worker.tenant import metrics as module
from gputax.worker.tenant.metrics import MetricsServer, TenantMetrics, server_from_variables
from gputax.worker.tenant.tally import Tally

LABELS = {"device": "cpu", "device_label": 'CPU (a "quoted" name\\), not a GPU', "technique": "cpu-shared", "pod": ""}


@pytest.fixture
def metrics() -> TenantMetrics:
    return TenantMetrics(Tally(target_ns=50_000_000))


@pytest.fixture
def server(metrics: TenantMetrics) -> Iterator[MetricsServer]:
    server = MetricsServer(metrics, "127.0.0.1", 0)
    yield server
    server.close()


def get(server: MetricsServer, path: str = "/metrics", **headers: str) -> tuple[int, str, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def families(server: MetricsServer) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(get(server)[2])}


def value(families: dict[str, Metric], sample: str) -> float:
    return next(each.value for family in families.values() for each in family.samples if each.name == sample)


def test_the_users_query_finds_its_sum_and_count(metrics: TenantMetrics, server: MetricsServer) -> None:
    for latency_ns in (20_000_000, 30_000_000, 70_000_001):
        metrics.tally.done(latency_ns)
    metrics.tally.failed()
    found = families(server)
    assert found["inference_time_seconds"].type == "histogram"
    assert value(found, "inference_time_seconds_count") == 3
    assert value(found, "inference_time_seconds_sum") == pytest.approx(0.120000001, abs=1e-12)
    assert value(found, "inferences_total") == 3
    assert value(found, "inference_errors_total") == 1
    assert value(found, "inferences_within_target_total") == 2
    assert value(found, "inference_target_seconds") == 0.05


def test_buckets_grow_and_end_in_the_count(metrics: TenantMetrics, server: MetricsServer) -> None:
    for latency_ns in (20_000_000, 30_000_000, 10**12):
        metrics.tally.done(latency_ns)
    samples = families(server)["inference_time_seconds"].samples
    buckets = [(each.labels["le"], each.value) for each in samples if each.name.endswith("_bucket")]
    counts = [count for _, count in buckets]
    assert counts == sorted(counts)
    assert buckets[-1] == ("+Inf", 3)
    assert next(float(le) for le, count in buckets if count == 1) == 0.02
    assert next(float(le) for le, count in buckets if count == 2) == 0.032


def test_without_a_target_there_is_no_goodput() -> None:
    server = MetricsServer(TenantMetrics(Tally()), "127.0.0.1", 0)
    try:
        found = families(server)
    finally:
        server.close()
    assert "inferences" in found
    assert "inferences_within_target" not in found
    assert "inference_target_seconds" not in found


def test_the_tenant_is_introduced_once_it_is_known(metrics: TenantMetrics, server: MetricsServer) -> None:
    assert "gputax_tenant_info" not in get(server)[2]
    metrics.introduce(LABELS)
    (info,) = families(server)["gputax_tenant_info"].samples
    assert info.value == 1
    assert info.labels == LABELS


def test_every_figure_names_a_device_that_is_no_gpu(metrics: TenantMetrics, server: MetricsServer) -> None:
    metrics.introduce({"device_label": "CPU (Ryzen), not a GPU"})
    for name, family in families(server).items():
        if name in ("inference_time_seconds", "inferences", "inference_errors", "inferences_within_target"):
            assert "CPU (Ryzen), not a GPU" in family.documentation


def test_openmetrics_is_given_to_who_asks_for_it(metrics: TenantMetrics, server: MetricsServer) -> None:
    metrics.introduce(LABELS)
    metrics.tally.done(20_000_000)
    _, kind, text = get(server, Accept="application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")
    found = {family.name: family for family in openmetrics_families(text)}  # type: ignore[no-untyped-call]
    assert found["gputax_tenant"].type == "info"
    assert value(found, "inference_time_seconds_count") == 1


def test_names_follow_the_rules_of_promtool(metrics: TenantMetrics, server: MetricsServer) -> None:
    metrics.introduce(LABELS)
    metrics.tally.done(1)
    text = get(server)[2]
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, flags=re.M))
    helps = dict(re.findall(r"^# HELP (\S+) (.+)$", text, flags=re.M))
    assert set(types) == set(helps), "every metric has a help text"
    for name, kind in types.items():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name), "no capitals, no colons"
        assert name.endswith("_total") == (kind == "counter")
        assert not re.search(r"_(count|sum|bucket)$", name)
        assert not re.search(r"gauge|counter|histogram|summary", name)
        assert not re.search(r"_(ms|us|milliseconds|minutes|kb|mb|gb|percent)(_|$)", name), "base units only"
        assert kind in ("counter", "gauge", "histogram")
    for label in re.findall(r"[{,]([a-zA-Z_]+)=", text):
        assert re.fullmatch(r"[a-z][a-z0-9_]*", label)


def test_health_is_told_beside_the_metrics(metrics: TenantMetrics, server: MetricsServer) -> None:
    for _ in range(2):
        assert get(server, "/healthz")[::2] == (200, "ok\n")
    assert get(server, "/readyz")[::2] == (503, "not warm yet\n")
    metrics.ready = True
    assert get(server, "/readyz")[::2] == (200, "ok\n")
    assert get(server, "/")[0] == 200
    assert get(server, "/nothing")[::2] == (404, "see /metrics\n")


def test_two_tenants_live_in_one_process() -> None:
    servers = [MetricsServer(TenantMetrics(Tally()), "127.0.0.1", 0) for _ in range(2)]
    try:
        assert servers[0].port != servers[1].port
        assert all("inferences_total 0.0" in get(server)[2] for server in servers)
    finally:
        for server in servers:
            server.close()


def test_a_taken_port_is_told_with_the_next_step(server: MetricsServer) -> None:
    with pytest.raises(PreflightError) as refused:
        MetricsServer(TenantMetrics(Tally()), "127.0.0.1", server.port)
    assert f"in use: {server.port}" in refused.value.what
    assert "--port" in refused.value.next_step


def test_an_address_that_is_not_ours_is_told(server: MetricsServer) -> None:
    with pytest.raises(PreflightError, match="metrics cannot be served"):
        MetricsServer(TenantMetrics(Tally()), "192.0.2.1", 0)


def test_a_closed_server_gives_its_port_back(metrics: TenantMetrics) -> None:
    def served_again() -> bool:
        first = MetricsServer(metrics, "127.0.0.1", 0)
        first.close()
        try:
            MetricsServer(metrics, "127.0.0.1", first.port).close()
        except PreflightError:
            return False
        return True

    assert any(served_again() for _ in range(3)), "somebody else may be given the port in between, but not every time"


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_an_address_of_ipv6_is_served(metrics: TenantMetrics) -> None:
    try:
        server = MetricsServer(metrics, "::1", 0)
    except PreflightError as error:
        pytest.skip(f"no IPv6 here: {error}")
    try:
        with urllib.request.urlopen(server.url, timeout=10) as answer:
            assert b"inferences_total" in answer.read()
    finally:
        server.close()


def test_a_client_that_says_nothing_keeps_nobody_waiting(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module._Handler, "timeout", 0.3)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as silent:
        started = time.monotonic()
        assert get(server, "/healthz")[0] == 200
        assert silent.recv(1) == b"", "the server hangs up"
        assert time.monotonic() - started < 8


def test_a_client_that_goes_away_is_no_news(server: MetricsServer, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    assert get(server, "/healthz")[0] == 200
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("text", ["abc", "-1", "70000", "80 00"])
def test_a_variable_that_is_no_port_is_refused(metrics: TenantMetrics, text: str) -> None:
    with pytest.raises(PreflightError, match="is not a port"):
        server_from_variables(metrics, {"GPUTAX_METRICS_PORT": text})


def test_without_the_variable_nothing_is_served(metrics: TenantMetrics) -> None:
    assert server_from_variables(metrics, {}) is None


def test_the_variables_choose_address_and_port(metrics: TenantMetrics) -> None:
    server = server_from_variables(metrics, {"GPUTAX_METRICS_PORT": "0", "GPUTAX_METRICS_ADDRESS": "127.0.0.1"})
    assert server is not None
    try:
        assert server.url == f"http://127.0.0.1:{server.port}/metrics"
        assert get(server, "/healthz")[0] == 200
    finally:
        server.close()
