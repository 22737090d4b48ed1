"""The blocks of the documentation that are marked for a cluster, run as they stand and in order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.images import ctr
from gputax.plan.options import IMAGE
from tests.e2e.real_cluster import RealCluster

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("namespace")]
REPOSITORY = Path(__file__).resolve().parents[2]
# Verdicts are answers: within budget, over it, not decided.
VERDICTS = (0, 6, 7)


def blocks(page: str) -> list[str]:
    text = (REPOSITORY / "docs" / page).read_text()
    found = re.findall(r"^```bash cluster\n(.*?)^```", text, flags=re.M | re.S)
    return [line for block in found for line in block.splitlines() if line]


def test_the_page_on_kubernetes_does_what_it_says(real_cluster: RealCluster, tmp_path: Path) -> None:
    # The default image's name, as a user would have built it: without a registry's name it is docker.io/library's.
    done = ctr(real_cluster.own, "images", "tag", "--force", real_cluster.image, f"docker.io/library/{IMAGE}")
    assert done.returncode == 0, done.stderr
    (tmp_path / "kubernetes").symlink_to(REPOSITORY / "kubernetes")
    environment = real_cluster.environment()
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    try:
        for line in blocks("kubernetes.md"):
            ended = subprocess.run(
                line, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=700
            )
            expected = VERDICTS if line.startswith(("gputax duet", "gputax compare")) else (0,)
            assert ended.returncode in expected, f"{line}\n{ended.stdout}\n{ended.stderr}"
    finally:
        real_cluster.kubectl("delete", "-k", str(REPOSITORY / "kubernetes/base"), "--ignore-not-found")
        real_cluster.kubectl("delete", "-k", str(REPOSITORY / "kubernetes/proxy/software"), "--ignore-not-found")
        real_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gputax"}})
