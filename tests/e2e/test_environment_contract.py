"""The environment contract in real pods, and that the least role is enough for it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gputax.environments.connection import WorkerConnection
from gputax.errors import WorkerError
from gputax.places import Places, environment_named
from gputax.plan.cells import Load, Setup
from gputax.plan.driver import driver_choice
from gputax.plan.options import EnvironmentOptions
from gputax.worker.protocol import decode_array
from tests.e2e.real_cluster import NAMESPACE, RealCluster, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("namespace")]
SYNTHETIC = Setup("resnet50", engine="synthetic:latency_us=1")


@pytest.fixture
def places(real_cluster: RealCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    monkeypatch.setenv("KUBECONFIG", str(real_cluster.kubeconfig))
    with Places(EnvironmentOptions(image=real_cluster.image, namespace=NAMESPACE, cpus=1, memory="1Gi")) as opened:
        yield opened
    assert real_cluster.ours() == []


def measured(places: Places, name: str, setup: Setup, queries: int) -> tuple[int, dict[str, Any]]:
    """Return how many queries came back, and the evidence."""
    environment = environment_named(name, driver_choice(setup), places)
    with WorkerConnection(environment) as connection:
        described = connection.describe()
        connection.call("prepare", setup=setup.to_dict(), stall_timeout_s=60)
        load = Load("saturate", min_queries=queries)
        answer = connection.call("measure", load=load.to_dict(), stall_timeout_s=60)
        evidence = connection.proven(described, uses_driver=True, stall_timeout_s=30).evidence
        return len(decode_array(answer["columns"]["end_ns"])), evidence.to_dict()


def test_a_worker_in_a_pod_measures_is_proven_and_sends_long_lines(places: Places) -> None:
    count, evidence = measured(places, "k8s", SYNTHETIC, 300_000)
    assert count >= 300_000
    assert evidence["active"] is True, evidence
    assert evidence["qos_class"] == "Guaranteed"
    assert evidence["cpu_allowance"]["threads"] == 1


def test_two_workers_share_one_pod_and_one_watch(places: Places, real_cluster: RealCluster) -> None:
    with (
        WorkerConnection(environment_named("k8s", places=places)) as one,
        WorkerConnection(environment_named("k8s", places=places)) as other,
    ):
        assert one.describe().pid != other.describe().pid
        assert len(real_cluster.ours()) == 1
    assert places.api_calls() <= 4


def test_a_hung_worker_is_ended_by_its_successor(places: Places, real_cluster: RealCluster) -> None:
    environment = environment_named("k8s", places=places)
    first = WorkerConnection(environment)
    pid = first.describe().pid
    (pod,) = real_cluster.ours()
    name = pod.partition("/")[2]
    stop = ["exec", "-n", NAMESPACE, name, "--", "python", "-c"]
    real_cluster.kubectl(*stop, f"import os, signal; os.kill({pid}, signal.SIGSTOP)")
    first.end()
    alive = f"import pathlib; print(pathlib.Path('/proc/{pid}').exists())"
    assert real_cluster.kubectl(*stop, alive).strip() == "True", "a stopped process does not see its pipe end"
    with WorkerConnection(environment) as second:
        second.describe()
        # Until its parent has asked for its exit code, a killed process is seen.
        eventually("the hung worker is gone", lambda: real_cluster.kubectl(*stop, alive).strip() == "False", 30)


def ask_for(seconds: float, connection: WorkerConnection) -> None:
    """Go on asking: the API server forgets a pod at once, but until the kubelet has ended it, it answers."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        connection.call("describe", stall_timeout_s=seconds)
        time.sleep(0.1)


def test_a_pod_that_dies_is_told_and_replaced(places: Places, real_cluster: RealCluster) -> None:
    environment = environment_named("k8s", places=places)
    with WorkerConnection(environment) as connection:
        connection.describe()
        (pod,) = real_cluster.ours()
        real_cluster.kubectl("delete", "-n", NAMESPACE, pod, "--grace-period=0", "--force")
        with pytest.raises(WorkerError, match="deleted"):
            ask_for(30, connection)
    with WorkerConnection(environment) as connection:
        assert connection.describe().pid


def test_the_role_of_the_manifests_is_enough(real_cluster: RealCluster, tmp_path: Path) -> None:
    least, token = real_cluster.least_kubeconfig(tmp_path)
    words = ["run", "--env", "k8s", "--image", real_cluster.image, "--cpus", "1", "--engine", "synthetic"]
    (tmp_path / "short.toml").write_text('scenarios = ["saturate"]\n[saturate]\nbatch = [1]\nduration_s = 0.3\n')
    done = real_cluster.gputax(*words, "--suite", "short.toml", "--out", "o", cwd=tmp_path, kubeconfig=least)
    assert done.returncode == 0, done.stderr
    assert token not in done.stdout + done.stderr
    assert subprocess.run(["grep", "-r", token, str(tmp_path / "o")], capture_output=True).returncode == 1
    assert real_cluster.ours() == []
