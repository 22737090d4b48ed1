"""One real cluster for all end-to-end tests: started here, or the one that KUBECONFIG names."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from e2e import cluster, images
from e2e.layout import Layout, run_directory
from e2e.prometheus import running_prometheus
from e2e.timings import Timings
from tests.e2e.real_cluster import NAMESPACE, RealCluster, eventually
from tests.e2e.shared_node import SharedNode, install_plugin_files, state_of, write_whole

_timings = Timings()


def _stop(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt  # so that a bounded run ends like one that was interrupted: with its cluster taken down


@pytest.fixture(scope="session")
def real_cluster() -> Iterator[RealCluster]:
    """Bring the cluster up with the product's image in it, and take it down."""
    yield from cluster_with(images.CPU)


def cluster_with(product: images.Product) -> Iterator[RealCluster]:
    """Bring the cluster up with an image of the product in it, and take it down."""
    signal.signal(signal.SIGTERM, _stop)
    given = os.environ.get("KUBECONFIG")
    own = Layout(run_directory())
    if given and given != str(own.kubeconfig()):
        image = os.environ.get("GPUTAX_E2E_IMAGE")
        if not image:
            pytest.skip("with KUBECONFIG, GPUTAX_E2E_IMAGE must name gputax's image as that cluster pulls it")
        yield RealCluster(Path(given), image, None)
        return
    # An image that is in the cluster already may be named, to try a test again without a build.
    ready_image = os.environ.get("GPUTAX_E2E_IMAGE")
    if not ready_image:
        with _timings.part("product image"):
            archive = images.product_archive(product)
    started_here = not cluster.running(own)
    if started_here:
        _, parts = cluster.up()
        _timings.seconds["cluster"] = sum(parts.seconds.values())
    try:
        if not ready_image:
            with _timings.part("image import"):
                images.import_archive(own, archive)
        yield RealCluster(own.kubeconfig(), ready_image or product.image, own)
    finally:
        if started_here and not os.environ.get("GPUTAX_E2E_KEEP"):
            with _timings.part("down"):
                problems = cluster.down()
            assert problems == []


@pytest.fixture
def namespace(real_cluster: RealCluster) -> Iterator[str]:
    """Give the product's namespace, as an administrator would have made it, and see that a test leaves nothing."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    real_cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}},
    )
    yield NAMESPACE
    # What has been told to go may take its few seconds; whatever nobody has told to go stays and is found.
    deadline = time.monotonic() + 10
    while (left := real_cluster.ours()) and time.monotonic() < deadline:
        time.sleep(0.5)
    real_cluster.kubectl("delete", "jobs,pods", "-n", NAMESPACE, "--all", "--grace-period=1")
    assert left == [], "objects were left behind"


@pytest.fixture(scope="module")
def node_with_one_gpu(real_cluster: RealCluster) -> Iterator[SharedNode]:
    """Leave the node one GPU, give its plugin the files of the documentation, and start Prometheus."""
    layout = real_cluster.own
    all_gpus = state_of(real_cluster)
    install_plugin_files(real_cluster)
    try:
        with running_prometheus(layout, NAMESPACE) as address:
            yield SharedNode(real_cluster, address, all_gpus).with_gpus(1)
    finally:
        write_whole(layout.plugin_switches, "")
    eventually("all GPUs are back", lambda: state_of(real_cluster) == all_gpus, 30)


@pytest.fixture
def shared(node_with_one_gpu: SharedNode, namespace: str) -> Iterator[SharedNode]:
    """Give the node, and see that a test leaves it as it was."""
    yield node_with_one_gpu
    node_with_one_gpu.turn()
    node_with_one_gpu.is_back()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how long each part of the lane took."""
    if _timings.seconds:
        terminalreporter.write_line(f"e2e lane beside the tests: {_timings.line()}")
