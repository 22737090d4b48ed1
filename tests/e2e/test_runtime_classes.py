"""`k8s:RUNTIMECLASS` for real: pods under gVisor, classes that start another runtime, and classes that start none."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.gvisor_runtime import runsc
from e2e.layout import FALSE_SANDBOX_RUNTIME, SANDBOX_RUNTIME
from tests.e2e.real_cluster import RealCluster

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("namespace")]
# Verdicts are answers: within budget, over it, not decided.
VERDICTS = (0, 6, 7)
SYNTHETIC = ("--engine", "synthetic:latency_us=500", "--scenario", "saturate", "--batch", "1", "--cpus", "1")


@pytest.fixture
def gvisor(real_cluster: RealCluster) -> Iterator[Callable[[str], None]]:
    """Give a function that makes the RuntimeClass `gvisor` with a handler; take the class away."""
    assert real_cluster.own
    runsc()

    def make(handler: str) -> None:
        metadata = {"name": "gvisor"}
        real_cluster.apply(
            {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": metadata, "handler": handler}
        )

    yield make
    real_cluster.kubectl("delete", "runtimeclass", "gvisor", "--ignore-not-found")


def gputax(cluster: RealCluster, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return cluster.gputax(*words, "--image", cluster.image, cwd=cwd)


def sandboxes() -> list[str]:
    """Return the processes of gVisor's sandboxes that run on this machine for a pod."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].startswith(b"runsc-") and any(b"/k8s.io" in word for word in words):
            found.append(path.parent.name)
    return found


def evidence(directory: Path) -> list[dict[str, Any]]:
    comparison = json.loads((directory / "comparison.json").read_text())
    return [side["evidence"] for side in comparison["sides"]]


def test_a_pod_under_gvisor_is_measured_against_a_plain_one(
    real_cluster: RealCluster, gvisor: Callable[[str], None], tmp_path: Path
) -> None:
    gvisor(SANDBOX_RUNTIME)
    words = ["duet", "k8s", "k8s:gvisor", "--workload", "micro:launch", "--device", "software", "--cpus", "1"]
    done = gputax(real_cluster, *words, "--max-time", "5", "--accept-disturbed", "--out", "r", cwd=tmp_path)
    assert done.returncode in VERDICTS, done.stderr
    plain, sandboxed = evidence(tmp_path / "r")
    assert (plain["active"], sandboxed["active"]) == (True, True), (plain, sandboxed)
    assert (sandboxed["runtime"], sandboxed["runtime_program"]) == ("gvisor", SANDBOX_RUNTIME)
    assert (sandboxed["runtime_class"], sandboxed["sandbox"]) == ("gvisor", "gvisor")
    assert sandboxed["host_kernel"] == os.uname().release != sandboxed["kernel"]
    assert (sandboxed["cpu_allowance"]["told_cpus"], sandboxed["cpu_allowance"]["threads"]) == (1.0, 1)
    assert real_cluster.ours() == []
    assert sandboxes() == []


def test_resnet50_is_measured_in_a_pod_under_gvisor(
    real_cluster: RealCluster, gvisor: Callable[[str], None], tmp_path: Path
) -> None:
    gvisor(SANDBOX_RUNTIME)
    words = ["run", "--env", "k8s:gvisor", "--device", "cpu", "--cpus", "1", "--scenario", "saturate", "--batch", "1"]
    words += ["--workload", "resnet50", "--accept-disturbed", "--out", "r"]
    done = gputax(real_cluster, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (measured,) = json.loads((tmp_path / "r/benchmark_results.json").read_text())["benchmarks"]
    assert (measured["evidence"]["active"], measured["evidence"]["sandbox"]) == (True, "gvisor")


def test_a_handler_that_starts_another_runtime_than_its_name_says_is_found_out(
    real_cluster: RealCluster, gvisor: Callable[[str], None], tmp_path: Path
) -> None:
    gvisor(FALSE_SANDBOX_RUNTIME)  # by its name it is gVisor: only the kernel inside tells
    words = ["run", "--env", "k8s:gvisor", *SYNTHETIC, "--accept-disturbed", "--out", "r"]
    done = gputax(real_cluster, *words, cwd=tmp_path)
    assert done.returncode == 5, done.stderr
    (measured,) = json.loads((tmp_path / "r/benchmark_results.json").read_text())["benchmarks"]
    assert measured["evidence"]["active"] is False
    assert "under gVisor a program sees gVisor's kernel, but the worker sees" in str(measured["evidence"]["reasons"])


@pytest.mark.parametrize(
    ("handler", "message"),
    [("runc", "gvisor is runc, not gVisor"), ("", "the cluster has no RuntimeClass 'gvisor'")],
)
def test_a_class_of_another_runtime_and_a_missing_one_are_refused_without_a_pod(
    handler: str, message: str, real_cluster: RealCluster, gvisor: Callable[[str], None], tmp_path: Path
) -> None:
    if handler:
        gvisor(handler)
    done = gputax(real_cluster, "run", "--env", "k8s:gvisor", *SYNTHETIC, "--out", "r", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert message in done.stderr
    assert "kubectl --context gputax-e2e get runtimeclass" in done.stderr
    assert real_cluster.ours() == []


def test_a_class_whose_handler_the_node_does_not_have_says_so(
    real_cluster: RealCluster, gvisor: Callable[[str], None], tmp_path: Path
) -> None:
    gvisor("runsc-nowhere")
    words = ["run", "--env", "k8s:gvisor", *SYNTHETIC, "--ready-timeout", "15", "--out", "r"]
    done = gputax(real_cluster, *words, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert 'no runtime for "runsc-nowhere" is configured' in done.stderr


def test_doctor_names_the_class_and_its_handler(
    real_cluster: RealCluster, gvisor: Callable[[str], None], tmp_path: Path
) -> None:
    gvisor(SANDBOX_RUNTIME)
    done = gputax(real_cluster, "doctor", "--env", "k8s:gvisor", cwd=tmp_path)
    assert "gvisor" in done.stdout
    assert SANDBOX_RUNTIME in done.stdout
    assert "FAIL" not in done.stdout, done.stdout
