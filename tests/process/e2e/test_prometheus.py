"""The lane's Prometheus stays on loopback and finds only the tenants' ports."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from e2e import packages, prometheus


def pod(name: str, phase: str = "Running", address: str = "10.0.0.9", port: str = "prometheus") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "gputax"},
        "spec": {"containers": [{"name": "gputax", "ports": [{"name": port, "containerPort": 8000}]}]},
        "status": {"phase": phase, "podIP": address},
    }


def test_prometheus_own_tool_takes_the_configuration(tmp_path: Path) -> None:
    if "prometheus" in packages.missing_packages():
        pytest.skip("Debian's prometheus is not installed; make e2e installs it")
    path, targets = tmp_path / "prometheus.yaml", tmp_path / "targets.json"
    targets.write_text(json.dumps(prometheus.targets_of([pod("one")])))
    path.write_text(prometheus.scrape_configuration(targets))
    done = subprocess.run(["promtool", "check", "config", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
