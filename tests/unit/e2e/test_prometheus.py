"""The lane's Prometheus stays on loopback and finds only the tenants' ports."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e import prometheus
from e2e.layout import Layout

LAYOUT = Layout(Path("/run-directory"))


def pod(name: str, phase: str = "Running", address: str = "10.0.0.9", port: str = "prometheus") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "gputax"},
        "spec": {"containers": [{"name": "gputax", "ports": [{"name": port, "containerPort": 8000}]}]},
        "status": {"phase": phase, "podIP": address},
    }


def test_a_running_pod_with_a_port_of_that_name_is_a_target() -> None:
    labels = {"namespace": "gputax", "pod": "one", "container": "gputax"}
    assert prometheus.targets_of([pod("one")]) == [{"targets": ["10.0.0.9:8000"], "labels": labels}]


def test_pods_without_an_address_or_the_port_or_that_have_ended_or_are_leaving_are_none() -> None:
    leaving = pod("leaving")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    others = [pod("new", address=""), pod("other", port="http"), pod("ended", "Succeeded"), leaving]
    assert prometheus.targets_of(others) == []


def test_it_scrapes_every_second_and_listens_on_loopback_and_keeps_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "program", lambda name: name)
    words = prometheus.command(LAYOUT)
    assert f"--web.listen-address=127.0.0.1:{prometheus.PORT}" in words
    assert "--storage.tsdb.path=/run-directory/prometheus" in words
    assert any(word.startswith("--storage.tsdb.retention.size=") for word in words)
    parsed = json.loads(prometheus.scrape_configuration(Path("/targets.json")))
    assert parsed["global"]["scrape_interval"] == "1s"


class ScriptedApi:
    """Gives the events of one watch, and then hangs as a quiet one does."""

    def __init__(self, *events: tuple[str, dict[str, Any]]) -> None:
        self.events = events
        self.quiet = threading.Event()

    def watch(self, path: str) -> Iterator[dict[str, Any]]:
        assert path.startswith("/api/v1/namespaces/gputax/pods?")
        for kind, found in self.events:
            yield {"type": kind, "object": found}
        self.quiet.wait(10)


def test_the_file_of_targets_follows_the_pods(tmp_path: Path) -> None:
    path = tmp_path / "targets.json"
    api = ScriptedApi(("ADDED", pod("one", address="10.0.0.1")), ("ADDED", pod("two")), ("DELETED", pod("two")))
    followed = prometheus.PodTargets(api, "gputax", path)
    try:
        deadline = time.monotonic() + 5
        while [each["labels"]["pod"] for each in json.loads(path.read_text())] != ["one"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        followed.close()
        api.quiet.set()
