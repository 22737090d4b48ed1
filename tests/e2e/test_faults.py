"""What goes wrong on a real cluster ends with the right message, a state to resume from, and no object left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e import cluster as lane
from e2e import configuration
from e2e.layout import NODE_NAME
from tests.e2e.real_cluster import RealCluster, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("namespace")]

SUITE = """
scenarios = ["single-stream"]
sample_count = 16
[single-stream]
pilot_s = 0.2
min_samples = {samples}
"""
SYNTHETIC = "synthetic:latency_us=10000"
SHORT, LONG = 100, 2000  # one second and twenty


def k8s_words(cluster: RealCluster, directory: Path, *, samples: int = SHORT, **changed: str) -> list[str]:
    suite = directory / f"suite-{samples}.toml"
    suite.write_text(SUITE.format(samples=samples))
    options = {"image": cluster.image, "engine": SYNTHETIC, "suite": str(suite), "cpus": "1", "memory": "1Gi"}
    options |= {"ready-timeout": "60"} | {name.replace("_", "-"): value for name, value in changed.items()}
    return ["run", "--env", "k8s", *(word for name, value in options.items() for word in (f"--{name}", value))]


def running_pod(cluster: RealCluster) -> str:
    """Wait until a worker measures in a pod and return the pod's name."""

    def measuring() -> str:
        for pod in cluster.get("pods", "-n", "gputax", "-l", "app.kubernetes.io/name=gputax")["items"]:
            if pod["status"]["phase"] == "Running":
                return str(pod["metadata"]["name"])
        return ""

    return str(eventually("a pod runs", measuring, 60))


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_more_gpus_than_there_are_are_refused_with_the_schedulers_reason(
    real_cluster: RealCluster, tmp_path: Path
) -> None:
    done = real_cluster.gputax(*k8s_words(real_cluster, tmp_path, gpus="9"), cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "Insufficient nvidia.com/gpu" in done.stderr
    assert "Traceback" not in done.stderr

    words = ["doctor", "--env", "k8s", "--image", real_cluster.image, "--gpus", "9", "--json"]
    doctor = real_cluster.gputax(*words, cwd=tmp_path)
    assert doctor.returncode == 3, doctor.stdout
    assert "requests 9 GPUs" in doctor.stdout


def test_a_wrong_image_name_is_told_in_the_kubelets_words(real_cluster: RealCluster, tmp_path: Path) -> None:
    words = k8s_words(real_cluster, tmp_path, image="gputax.local/gputax:no-such-tag")
    done = real_cluster.gputax(*words, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "gputax.local/gputax:no-such-tag" in done.stderr
    assert "--image" in done.stderr


def limited_user(cluster: RealCluster, directory: Path, rules: list[dict[str, Any]]) -> Path:
    """Make a service account with these rules and return its kubeconfig."""
    where = {"namespace": "gputax", "name": "limited"}
    group = "rbac.authorization.k8s.io"
    cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": where},
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": where, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": where,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "limited"},
            "subjects": [{"kind": "ServiceAccount", **where}],
        },
    )
    token = cluster.kubectl("create", "token", "limited", "-n", "gputax").strip()
    path = directory / "limited.kubeconfig"
    path.write_text(configuration.kubeconfig_of_user(cluster.own.certificates, "limited", {"token": token}))
    path.chmod(0o600)
    return path


def test_a_missing_permission_is_named_by_verb_and_resource(real_cluster: RealCluster, tmp_path: Path) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    kubeconfig = limited_user(real_cluster, tmp_path, rules)
    done = real_cluster.gputax(*k8s_words(real_cluster, tmp_path), cwd=tmp_path, kubeconfig=kubeconfig)
    assert done.returncode == 3, done.stderr
    assert "create" in done.stderr
    assert "pods" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_node_that_is_not_ready_is_told_and_works_again_afterwards(real_cluster: RealCluster, tmp_path: Path) -> None:
    layout = real_cluster.own

    def ready() -> str:
        conditions = real_cluster.get("node", NODE_NAME)["status"]["conditions"]
        return str(next(each["status"] for each in conditions if each["type"] == "Ready"))

    def kept_free() -> bool:
        """Whether the scheduler knows of it too."""
        return ready() != "True" and bool(real_cluster.get("node", NODE_NAME)["spec"].get("taints"))

    lane.stop_daemon(layout, "kubelet")
    try:
        eventually("the node is NotReady", kept_free, 60)
        done = real_cluster.gputax(*k8s_words(real_cluster, tmp_path), cwd=tmp_path)
        doctor = real_cluster.gputax("doctor", "--env", "k8s", "--image", real_cluster.image, cwd=tmp_path)
    finally:
        lane.start_daemon(layout, "kubelet")
    assert done.returncode == 3, done.stderr
    assert "taint" in done.stderr or "NotReady" in done.stderr
    assert NODE_NAME in doctor.stdout + doctor.stderr
    eventually("the node is Ready", lambda: ready() == "True", 40)
    eventually("its GPUs are back", lambda: lane.allocatable_gpus(layout) == 4, 40)
    again = real_cluster.gputax(*k8s_words(real_cluster, tmp_path), cwd=tmp_path)
    assert again.returncode == 0, again.stderr


def test_a_pod_killed_in_mid_measurement_fails_its_cell_and_the_same_command_resumes(
    real_cluster: RealCluster, tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    words = [*k8s_words(real_cluster, tmp_path, samples=LONG), "--out", "killed"]
    process = real_cluster.begin(*words, cwd=tmp_path)
    started.append(process)
    pod = running_pod(real_cluster)
    time.sleep(6)  # into the measurement: the worker needs two seconds to start
    real_cluster.kubectl("delete", "pod", pod, "-n", "gputax", "--grace-period=0", "--force")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 4, errors
    assert "deleted" in errors
    again = real_cluster.gputax(*words, cwd=tmp_path, timeout_s=180)
    assert again.returncode == 0, again.stderr
    record = json.loads((tmp_path / "killed/benchmark_results.json").read_text())
    assert record["complete"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_client_leaves_no_object(
    real_cluster: RealCluster, tmp_path: Path, started: list[subprocess.Popen[str]], number: signal.Signals
) -> None:
    process = real_cluster.begin(*k8s_words(real_cluster, tmp_path, samples=LONG), cwd=tmp_path)
    started.append(process)
    running_pod(real_cluster)
    time.sleep(4)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert real_cluster.ours() == []
