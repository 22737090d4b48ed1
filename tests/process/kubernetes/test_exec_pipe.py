from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from gputax.kubernetes.exec_pipe import EXIT_REFUSED, words


def test_without_a_kubeconfig_it_says_so_and_ends(tmp_path: Path) -> None:
    command = words("", "gputax", "p", ["true"])
    assert command[0] == sys.executable
    done = subprocess.run(
        command, env={**os.environ, "KUBECONFIG": str(tmp_path / "none")}, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == EXIT_REFUSED
    assert "no kubeconfig found" in done.stderr


def test_a_server_that_is_not_there_is_no_traceback(tmp_path: Path) -> None:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
        "current-context": "x",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    done = subprocess.run(
        words("", "gputax", "p", ["true"]),
        env={**os.environ, "KUBECONFIG": str(tmp_path / "config")},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == EXIT_REFUSED
    assert "the cluster cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr
