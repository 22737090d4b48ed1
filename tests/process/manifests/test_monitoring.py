"""kubernetes/monitoring: what is scraped is what the tenants serve, and every query asks for metrics that exist."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from gputax.worker.tenant.metrics import TenantMetrics
from gputax.worker.tenant.tally import Tally
from tests.process.manifests.built import KUBERNETES, OVERLAYS, Manifest, built, one, read_back

USERS_QUERY = "avg(sum(rate(inference_time_seconds_sum[2m])) / sum(rate(inference_time_seconds_count[2m])))"
DASHBOARD: dict[str, Any] = json.loads((KUBERNETES / "monitoring/grafana-dashboard.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel.get("targets", ())]
FUNCTIONS = {"rate", "sum", "avg", "count", "max", "histogram_quantile", "vector", "label_values"}
WORDS = {"by", "on", "group_left", "or"}
# As the DCGM exporter names them; it is NVIDIA's and may be absent.
DCGM = {
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_SM_CLOCK",
}
# What Prometheus' discovery adds to every series of a pod, both by the PodMonitor and by the plain job.
FROM_DISCOVERY = {"namespace", "pod", "job", "instance"}


def served() -> dict[str, set[str]]:
    """Return the series of a tenant with a goodput target, each with its labels, as a scrape shows them."""
    from gputax.plan.cells import Setup
    from gputax.worker.tenant.info import labels_from

    metrics = TenantMetrics(Tally(target_ns=1))
    metrics.introduce(labels_from(Setup("yolos-small"), {"device": "cpu"}, {}, [], {}))
    found: dict[str, set[str]] = {}
    for family in metrics.collect():
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def metrics_in(query: str) -> set[str]:
    """Return the metric names in a query: words that are no function, keyword, label or text."""
    bare = re.sub(r'"[^"]*"', '""', query)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    bare = re.sub(r"\b(by|on|group_left)\s*\([^)]*\)", "", bare)
    words = set(re.findall(r"[A-Za-z_:][A-Za-z0-9_:]*", bare))
    called = set(re.findall(r"([A-Za-z_]+)\s*\(", bare))
    assert called <= FUNCTIONS | WORDS, query
    return words - FUNCTIONS - WORDS


def labels_in(query: str) -> set[str]:
    """Return the labels by which a query chooses, groups or joins."""
    groups = re.findall(r"\b(?:by|on|group_left)\s*\(([^)]*)\)", query)
    matched = re.findall(r"([a-zA-Z_]+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', query))
    return {name.strip() for group in groups for name in group.split(",")} | set(matched)


def test_the_reader_of_queries_finds_names_and_labels() -> None:
    query = 'sum by (le, t) (rate(a_total{n=~"$b", x!=""}[$w]) * on (job) group_left (t) info_b{t=~"c"}) ^ 2'
    assert metrics_in(query) == {"a_total", "info_b"}
    assert labels_in(query) == {"le", "t", "n", "x", "job"}


@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[f"{number}" for number in range(len(QUERIES))])
def test_every_query_of_the_dashboard_names_metrics_and_labels_that_exist(title: str, query: str) -> None:
    series = served()
    names = metrics_in(query)
    assert names, title
    assert names <= set(series) | DCGM, title
    if not names <= DCGM:
        known = FROM_DISCOVERY.union(*(series[name] for name in names))
        # The technique and the like come to the other series by the join with the info metric.
        assert labels_in(query) <= known | {"le"}, title
    assert query.count("(") == query.count(")")


def test_the_dashboard_shows_the_experiment() -> None:
    queries = [query for _, query in QUERIES]
    assert USERS_QUERY in queries
    for quantile in ("0.5", "0.9", "0.99"):
        assert any(query.startswith(f"histogram_quantile({quantile},") for query in queries)
    named = set().union(*(metrics_in(query) for query in queries))
    assert {"inferences_total", "inference_errors_total", "inferences_within_target_total"} <= named
    titles = " ".join(panel["title"] for panel in PANELS)
    for word in ("Mean", "p99", "by tenant", "total", "Jain", "Errors", "Tenants running", "Device busy"):
        assert word in titles


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in PANELS]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        squares = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not squares & taken, panel["title"]
        taken |= squares
        refs = [target["refId"] for target in panel.get("targets", ())]
        assert len(refs) == len(set(refs))


def test_the_dashboard_works_with_any_prometheus_data_source() -> None:
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    assert variables == {"datasource", "namespace", "technique", "window"}
    for panel in PANELS:
        for each in [panel, *panel.get("targets", ())]:
            if panel["type"] != "row":
                assert each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    used = set(re.findall(r"\$(\w+)", " ".join(query for _, query in QUERIES)))
    assert used <= variables


def test_grafana_finds_the_dashboard_by_its_label_and_gets_the_very_file() -> None:
    config = one(built("monitoring"), "ConfigMap")
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert config["metadata"]["namespace"] == "monitoring"
    assert json.loads(config["data"]["gputax.json"]) == DASHBOARD
    patch = yaml.safe_load((KUBERNETES / "monitoring/grafana-kube-prometheus.yaml").read_text())
    (volume,) = patch["spec"]["template"]["spec"]["volumes"]
    (mounted,) = patch["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert volume["configMap"]["name"] == config["metadata"]["name"]
    assert mounted["name"] == volume["name"]
    assert mounted["mountPath"].startswith("/grafana-dashboard-definitions/0/")


def selects(selector: Manifest, labels: dict[str, str]) -> bool:
    return all(
        labels.get(each["key"]) in each["values"] for each in selector["matchExpressions"] if each["operator"] == "In"
    )


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_pod_monitor_scrapes_the_clients_of_every_overlay(overlay: str) -> None:
    monitor = one(built("monitoring"), "PodMonitor")["spec"]
    template = one(built(f"sharing/overlays/{overlay}"), "Deployment")["spec"]["template"]
    assert selects(monitor["selector"], template["metadata"]["labels"])
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["port"] in {each["name"] for each in template["spec"]["containers"][0]["ports"]}


def test_the_pod_monitor_scrapes_the_tenants_of_share_and_nothing_else_of_ours() -> None:
    from gputax.kubernetes.objects import labels

    selector = one(built("monitoring"), "PodMonitor")["spec"]["selector"]
    assert selects(selector, labels("any", "tenant"))
    for role in ("worker", "benchmark", "proxy"):
        assert not selects(selector, labels("any", role))


def test_prometheus_may_see_the_pods_that_it_scrapes() -> None:
    manifests = built("monitoring")
    role, binding, monitor = (one(manifests, kind) for kind in ("Role", "RoleBinding", "PodMonitor"))
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == monitor["metadata"]["namespace"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    # The account of kube-prometheus' Prometheus.
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "prometheus-k8s", "namespace": "monitoring"}]


def test_a_prometheus_without_the_operator_finds_the_same_pods_under_the_same_labels() -> None:
    (job,) = yaml.safe_load((KUBERNETES / "monitoring/prometheus.yaml").read_text())["scrape_configs"]
    kept = [rule for rule in job["relabel_configs"] if rule.get("action") == "keep"]
    assert re.fullmatch(kept[0]["regex"], "gputax;client")
    assert re.fullmatch(kept[0]["regex"], "gputax;tenant")
    assert not re.fullmatch(kept[0]["regex"], "gputax;worker")
    assert kept[1]["regex"] == "prometheus"
    given = {rule["target_label"] for rule in job["relabel_configs"] if "target_label" in rule}
    assert given | {"job", "instance"} >= FROM_DISCOVERY
    assert job["job_name"] == "gputax/gputax-tenants", "as the operator names the PodMonitor's job"


@pytest.mark.parametrize("place", ["monitoring", "monitoring/dcgm"])
def test_the_other_objects_have_only_fields_that_kubernetes_knows(place: str) -> None:
    for manifest in built(place):
        if not manifest["apiVersion"].startswith("monitoring.coreos.com/"):
            assert read_back(manifest) == manifest


def test_dcgm_s_own_labels_are_kept() -> None:
    (endpoint,) = one(built("monitoring/dcgm"), "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["port"] == "gpu-metrics"
    assert endpoint["honorLabels"] is True
