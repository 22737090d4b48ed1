"""`e2e/kubernetes/build.sh` with a stand-in for Go: one build of what is missing, whole or not at all."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "e2e/kubernetes/build.sh"
GO = """#!/bin/sh
echo "$*" >> "$CALLS"
for word; do
  case $word in
    */.part/) out=$word ;;
    k8s.io/*|github.com/*/cmd/*) echo built > "$out${word##*/}"; chmod +x "$out${word##*/}" ;;
  esac
done
exit ${GO_FAILS:-0}
"""
PROGRAMS = {
    "kube-apiserver", "kubelet", "kube-controller-manager", "kube-scheduler", "kubectl",
    "containerd", "containerd-shim-runc-v2", "ctr",
}  # fmt: skip


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/go").write_text(GO)
    (tmp_path / "bin/go").chmod(0o755)
    path = f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache"), "CALLS": str(tmp_path / "calls")}


def build(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, timeout=60)


def programs(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if not path.name.startswith(".")}


def test_all_programs_are_built_in_one_call_and_only_once(environment: dict[str, str]) -> None:
    done = build(environment)
    assert done.returncode == 0, done.stderr
    directory = Path(done.stdout.strip())
    assert programs(directory) == PROGRAMS
    (directory / "kubectl").unlink()
    for _ in range(2):
        assert build(environment).returncode == 0
    calls = Path(environment["CALLS"]).read_text().splitlines()
    assert [line.count("/cmd/") for line in calls] == [8, 1]


def test_a_failed_build_leaves_no_program(environment: dict[str, str]) -> None:
    failed = build({**environment, "GO_FAILS": "1"})
    assert failed.returncode != 0
    (directory,) = (Path(environment["XDG_CACHE_HOME"]) / "gputax").iterdir()
    assert programs(directory) == set()
    assert build(environment).returncode == 0
    assert programs(directory) == PROGRAMS
