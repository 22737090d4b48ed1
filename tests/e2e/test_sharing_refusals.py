"""A technique that is not there gives no number: never ready, or on by name alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.layout import NODE_NAME
from tests.e2e.shared_node import DRIVER, SharedNode, record_in

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("technique", ["mps", "mig"])
def test_a_technique_that_never_becomes_ready_is_refused_and_the_node_is_put_back(
    shared: SharedNode, tmp_path: Path, technique: str
) -> None:
    shared.turn("never-ready")
    words = shared.words(tech=technique, tenants="2", ready_timeout="12", **DRIVER)
    done = shared.cluster.gputax(*words, cwd=tmp_path)
    assert done.returncode == 3, done.stderr + done.stdout
    assert technique in done.stderr
    assert NODE_NAME in done.stderr
    assert (
        "nvidia.com/mig.config.state is pending" if technique == "mig" else "0 nvidia.com/gpu.shared"
    ) in done.stderr
    assert "next:" in done.stderr
    assert "Traceback" not in done.stderr
    shared.is_back()


@pytest.mark.parametrize(
    ("technique", "lie", "gpus", "reason"),
    [("mps", "no-daemon", 1, "pipe"), ("time-slicing", "spread", 4, "different GPUs")],
)
def test_a_technique_that_only_claims_to_be_on_gives_no_number(
    shared: SharedNode, tmp_path: Path, technique: str, lie: str, gpus: int, reason: str
) -> None:
    node = shared if gpus == shared.gpus else shared.with_gpus(gpus)
    node.turn(lie)
    words = node.words(tech=technique, tenants="2", **DRIVER)
    done = node.cluster.gputax(*words, "--out", "lie", cwd=tmp_path)
    assert done.returncode == 5, done.stderr + done.stdout
    record = record_in(tmp_path / "lie")
    assert not any(cell["valid"] for cell in record["cells"])
    assert record["rows"] == []
    (warning,) = [each for each in record["cells"][0]["warnings"] if each["code"] == "no-evidence"]
    assert reason in warning["text"], warning
    assert reason in done.stdout + done.stderr, "told to the user too"
    node.is_back()
