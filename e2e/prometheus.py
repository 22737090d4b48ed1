"""A real Prometheus beside the cluster: it scrapes every second what a watch of the namespace's pods tells it."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from e2e.api import Api
from e2e.layout import Layout
from e2e.packages import program
from e2e.processes import start, stop, wait_until

NAME = "prometheus"
PORT = 19090
URL = f"http://127.0.0.1:{PORT}"
INTERVAL_S = 1
PORT_NAME = "prometheus"


def scrape_configuration(targets: Path) -> str:
    """Return Prometheus' configuration: every target of a file, which it reads again when it changes."""
    every = f"{INTERVAL_S}s"
    settings = {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": "1m"}
    job = {"job_name": "tenants", "file_sd_configs": [{"files": [str(targets)]}]}
    # Prometheus reads YAML, and JSON is YAML.
    return json.dumps({"global": settings, "scrape_configs": [job]}, indent=1) + "\n"


def command(layout: Layout) -> list[str]:
    """Return its command line: on loopback alone, its data in the run directory and bounded."""
    return [
        program("prometheus"),
        f"--config.file={layout.configuration / 'prometheus.yaml'}",
        f"--web.listen-address=127.0.0.1:{PORT}",
        f"--storage.tsdb.path={layout.root / 'prometheus'}",
        "--storage.tsdb.retention.time=2h",
        "--storage.tsdb.retention.size=256MB",
        "--scrape.discovery-reload-interval=1s",
        "--log.level=warn",
    ]


def targets_of(pods: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what a PodMonitor on the port `prometheus` would find: the running pods that name such a port."""
    found = []
    for pod in pods:
        metadata, status = pod["metadata"], pod.get("status") or {}
        if status.get("phase") != "Running" or not status.get("podIP") or metadata.get("deletionTimestamp"):
            continue
        for container in pod["spec"]["containers"]:
            labels = {"namespace": metadata["namespace"], "pod": metadata["name"], "container": container["name"]}
            for port in container.get("ports") or ():
                if port.get("name") == PORT_NAME:
                    found.append({"targets": [f"{status['podIP']}:{port['containerPort']}"], "labels": labels})
    return sorted(found, key=lambda each: str(each["labels"]["pod"]))


class Watches(Protocol):
    """What of the API is needed here."""

    def watch(self, path: str) -> Iterator[dict[str, Any]]:
        """Give each event of a watch."""
        ...


class PodTargets:
    """Keeps the file of targets in step with the pods. Debian's Prometheus is built without Kubernetes' discovery."""

    def __init__(self, api: Watches, namespace: str, path: Path) -> None:
        self._api, self._path = api, path
        self._watch = f"/api/v1/namespaces/{namespace}/pods?allowWatchBookmarks=false"
        self._ended = threading.Event()
        self._write([])
        self._thread = threading.Thread(target=self._follow, name="pod-targets", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop following; the thread sees it with the next news, and ends with the process otherwise."""
        self._ended.set()

    def _follow(self) -> None:
        while not self._ended.is_set():
            pods: dict[str, dict[str, Any]] = {}
            with contextlib.suppress(OSError, ValueError):
                for event in self._api.watch(self._watch):
                    if self._ended.is_set():
                        return
                    name = str(event["object"].get("metadata", {}).get("name"))
                    pods.pop(name, None)
                    if event["type"] in ("ADDED", "MODIFIED"):
                        pods[name] = event["object"]
                    self._write(targets_of(pods.values()))
            self._ended.wait(1)

    def _write(self, targets: list[dict[str, Any]]) -> None:
        text = json.dumps(targets)
        if not self._path.exists() or self._path.read_text() != text:
            part = self._path.with_suffix(".part")
            part.write_text(text)
            part.rename(self._path)


@contextlib.contextmanager
def running_prometheus(layout: Layout, namespace: str) -> Iterator[str]:
    """Start it without any data of before, give its address, and end it."""
    shutil.rmtree(layout.root / "prometheus", ignore_errors=True)
    targets = layout.configuration / "prometheus_targets.json"
    followed = PodTargets(Api(layout.certificates, NAME), namespace, targets)
    (layout.configuration / "prometheus.yaml").write_text(scrape_configuration(targets))
    start(layout, NAME, command(layout))
    try:
        wait_until("Prometheus is ready", _is_ready, layout, NAME, limit_s=30)
        yield URL
    finally:
        stop(layout, NAME)
        followed.close()


def query(expression: str, at: float | None = None) -> list[dict[str, Any]]:
    """Return the answer to an instant query: one entry per series."""
    asked = {"query": expression} | ({} if at is None else {"time": f"{at:.3f}"})
    address = f"{URL}/api/v1/query?{urllib.parse.urlencode(asked)}"
    with urllib.request.urlopen(address, timeout=10) as answer:
        return list(json.load(answer)["data"]["result"])


def _is_ready() -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{URL}/-/ready", timeout=1) as answer:
        return bool(answer.status == 200)
    return False
