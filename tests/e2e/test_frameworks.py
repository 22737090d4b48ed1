"""PyTorch and ONNX Runtime CUDA in pods behind the DaemonSet's proxy, with null kernels: `make e2e-frameworks`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e import images
from gputax.kubernetes.objects import LIBRARY_DIRECTORY
from tests.builders.elf import without_symbol
from tests.e2e.conftest import cluster_with
from tests.e2e.node_proxy import installed_proxy
from tests.e2e.real_cluster import RealCluster

pytestmark = [pytest.mark.e2e_frameworks, pytest.mark.usefixtures("namespace")]

# The proxy of the node chooses the device and its kernels; a tenant's own variables do not reach it.
NULL = {"GPUTAX_SOFT_KERNELS": "null", "GPUTAX_SOFT_MEMORY_MB": "2048"}
PROVIDERS = {"onnx": "CUDAExecutionProvider", "torch": "torch cuda:0"}
SYMBOL = "cuTensorMapEncodeTiled"
SUITE = 'scenarios = ["single-stream"]\nsample_count = 4\n[single-stream]\npilot_s = 0.2\nmin_samples = 64\n'
LAUNCHES_AT_LEAST = 50
"""Of one ResNet-50: at least one for each layer with weights."""


@pytest.fixture(scope="session")
def real_cluster() -> Iterator[RealCluster]:
    """The cluster with the image of this lane in place of the ordinary one."""
    yield from cluster_with(images.FRAMEWORKS)


@pytest.fixture(scope="module")
def serving(real_cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with installed_proxy(real_cluster, tmp_path_factory.mktemp("proxy"), NULL) as cluster:
        yield cluster


def run(cluster: RealCluster, engine: str, directory: Path) -> Any:
    (directory / "tiny.toml").write_text(SUITE)
    words = ["run", "--env", "k8s+proxy", "--engine", engine, "--workload", "resnet50", "--suite", "tiny.toml"]
    words += ["--device", "software", "--soft-kernels", "null", "--cuda-runtime", "--accept-disturbed", "--out", "o"]
    size = ["--image", cluster.image, "--cpus", "1", "--memory", "6Gi"]
    return cluster.gputax(*words, *size, cwd=directory, timeout_s=900)


@pytest.mark.parametrize("engine", sorted(PROVIDERS))
def test_a_framework_in_a_pod_reaches_the_proxy_with_every_call(
    serving: RealCluster, tmp_path: Path, engine: str
) -> None:
    done = run(serving, engine, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "null kernels" in done.stdout
    record = json.loads((tmp_path / "o/benchmark_results.json").read_text())
    assert record["device_label"] == "software device (gputax software device, null kernels of 0 ns), not a GPU"
    (benchmark,) = record["benchmarks"]
    assert benchmark["valid"] is True
    assert benchmark["provider"] == PROVIDERS[engine]
    assert "not inference" in benchmark["claim"]
    evidence = benchmark["evidence"]
    assert evidence["active"] is True, evidence
    assert evidence["device_nodes"] == evidence["device_ids"]["nodes"] == []
    launches = LAUNCHES_AT_LEAST * benchmark["queries"]
    assert evidence["calls_by_worker"] == evidence["calls_by_proxy"] > launches
    assert evidence["software"]["launches_null"] >= launches
    assert evidence["cuda_runtime"]["asked_for"]
    assert evidence["cuda_runtime"]["self_tests_answered"] > 0
    assert "answers_checked" not in evidence, "null kernels have no answers"
    print(f"{engine}: {evidence['calls_by_worker']} calls, {benchmark['queries']} queries")
    assert serving.ours() == [], "the tenant's pod is gone"


@pytest.fixture
def lacking(serving: RealCluster) -> Iterator[str]:
    """Hide one symbol of the library that the node's plugin gives to tenants."""
    assert serving.own, "the node is this machine"
    library = Path(LIBRARY_DIRECTORY) / "libcuda.so.1"
    whole = library.read_bytes()
    replace_file(library, without_symbol(whole, SYMBOL.encode()))
    try:
        yield SYMBOL
    finally:
        replace_file(library, whole)


def replace_file(path: Path, content: bytes) -> None:
    """Put another file in its place, as the plugin does: who has the old one mapped keeps it."""
    part = path.with_suffix(".part")
    part.write_bytes(content)
    part.chmod(path.stat().st_mode)
    part.rename(path)


def test_a_pod_whose_driver_lacks_one_symbol_is_refused_and_the_symbol_named(
    serving: RealCluster, lacking: str, tmp_path: Path
) -> None:
    done = run(serving, "onnx", tmp_path)
    said = " ".join(done.stderr.split())
    assert done.returncode == 3, said
    assert "after loading the session runs on CPUExecutionProvider" in said
    assert f"undefined symbol: {lacking}" in said
    assert not (tmp_path / "o").exists()
    assert serving.ours() == [], "the tenant's pod is gone"
