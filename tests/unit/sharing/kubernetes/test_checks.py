"""The doctor names how GPU nodes share, from their labels."""

from __future__ import annotations

from typing import Any

from gputax.doctor.cluster import Wanted, check_sharing


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"name": name, "labels": {key.replace("__", "/").replace("_", "-"): value for key, value in labels.items()}}


def test_each_node_that_tells_of_sharing_is_named_with_who_divides_it() -> None:
    strategy, replicas = "nvidia.com__gpu.sharing_strategy", "nvidia.com__gpu.replicas"
    nodes = [
        node("shared", **{strategy: "mps", replicas: "7"}),
        node("cut", **{"nvidia.com__mig.config": "all-1g.10gb", "nvidia.com__mig.config.state": "success"}),
        node("plain"),
    ]
    findings = check_sharing({"nodes": nodes}, Wanted())
    assert [(each.status, each.title, each.detail) for each in findings] == [
        (
            "ok",
            "Sharing on node shared (device-plugin)",
            "nvidia.com/gpu.sharing-strategy=mps, nvidia.com/gpu.replicas=7",
        ),
        (
            "ok",
            "Sharing on node cut (operator)",
            "nvidia.com/mig.config=all-1g.10gb, nvidia.com/mig.config.state=success",
        ),
    ]
    assert check_sharing({}, Wanted()) == []
