"""How a test reaches the real cluster, and how it waits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e.layout import REPOSITORY, Layout, kubernetes_directory

NAMESPACE = "gputax"
OURS = "app.kubernetes.io/name=gputax"


@dataclass(frozen=True)
class RealCluster:
    """How a test reaches the cluster; `layout` only where we may stop its parts."""

    kubeconfig: Path
    image: str
    layout: Layout | None

    @property
    def own(self) -> Layout:
        """Return the cluster's inside, or skip: nobody stops the kubelet of a cluster that was lent to us."""
        if self.layout is None:
            pytest.skip("needs a cluster of our own: run it without KUBECONFIG")
        return self.layout

    def environment(self, kubeconfig: Path | None = None) -> dict[str, str]:
        """Return the variables for a program that talks with the cluster."""
        path = f"{kubernetes_directory()}{os.pathsep}{os.environ['PATH']}" if self.layout else os.environ["PATH"]
        return {**os.environ, "KUBECONFIG": str(kubeconfig or self.kubeconfig), "PATH": path, "COLUMNS": "200"}

    def try_kubectl(self, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl; the caller judges how it ended."""
        return subprocess.run(
            ["kubectl", *words], input=given, env=self.environment(), capture_output=True, text=True, timeout=300
        )

    def kubectl(self, *words: str, given: str | None = None) -> str:
        """Run kubectl, which must succeed, and return what it printed."""
        done = self.try_kubectl(*words, given=given)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def get(self, *words: str) -> Any:
        """Return an object or a list as data."""
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def apply(self, *objects: dict[str, Any]) -> None:
        """Apply objects."""
        self.kubectl("apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def ours(self, namespace: str = NAMESPACE) -> list[str]:
        """Return what is left of us: pods, Jobs and config maps with our label."""
        # A cluster that was lent to us may be too old for claims.
        kinds = "pods,jobs,configmaps,secrets,services,daemonsets" + (",resourceclaims" if self.layout else "")
        items = self.get(kinds, "-n", namespace, "-l", OURS)["items"]
        return [f"{item['kind']}/{item['metadata']['name']}" for item in items]

    def gputax(
        self, *words: str, cwd: Path, kubeconfig: Path | None = None, timeout_s: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run gputax as a user of this cluster."""
        return subprocess.run(
            self.words(*words), cwd=cwd, env=self.environment(kubeconfig), capture_output=True, text=True,
            timeout=timeout_s,
        )  # fmt: skip

    def least_kubeconfig(self, directory: Path) -> tuple[Path, str]:
        """Return a kubeconfig of the service account of kubernetes/access, and the token in it."""
        self.kubectl("apply", "-k", str(REPOSITORY / "kubernetes/access"))
        token = self.kubectl("create", "token", "gputax", "-n", NAMESPACE).strip()
        config = json.loads(self.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
        config["users"][0]["user"] = {"token": token}
        path = directory / "least.kubeconfig"
        path.write_text(json.dumps(config))
        path.chmod(0o600)
        return path, token

    def begin(self, *words: str, cwd: Path) -> subprocess.Popen[str]:
        """Start gputax and leave it running, for a fault to meet it."""
        return subprocess.Popen(
            self.words(*words), cwd=cwd, env=self.environment(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    @staticmethod
    def words(*words: str) -> list[str]:
        """Return the command line of gputax."""
        return [sys.executable, "-m", "gputax", *words]


def eventually(what: str, holds: Callable[[], Any], limit_s: float = 60) -> Any:
    """Wait until something holds and return it."""
    deadline = time.monotonic() + limit_s
    while not (value := holds()):
        assert time.monotonic() < deadline, f"not within {limit_s:.0f} s: {what}"
        time.sleep(0.2)
    return value


def calls_since(cluster: RealCluster, position: int) -> list[dict[str, Any]]:
    """Return what was asked of the API since the audit log had this size, by others than kubectl."""
    with cluster.own.audit_log.open() as file:
        file.seek(position)
        calls = [json.loads(line) for line in file]
    return [each for each in calls if "kubectl" not in each.get("userAgent", "")]
