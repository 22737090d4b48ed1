"""The facts of a node, read from the Node that the API server gives."""

from __future__ import annotations

from typing import Any

import pytest

from gputax.kubernetes.nodes import GPU_LABELS, NodeFacts, node_facts, quantity


def test_a_node_as_the_api_server_gives_it() -> None:
    read = node_facts(
        {
            "metadata": {"name": "n", "labels": {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}},
            "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
            "status": {
                "allocatable": {"cpu": "3920m", "nvidia.com/gpu": "1"},
                "capacity": {"nvidia.com/gpu": "1"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    ).to_dict()
    assert (read["cpus"], read["gpus"], read["ready"]) == (3.92, 1, True)
    assert read["taints"] == ["nvidia.com/gpu=present:NoSchedule"]
    assert read["gpu_hint"] == "cloud.google.com/gke-accelerator=nvidia-tesla-t4"


@pytest.mark.parametrize(
    ("conditions", "unschedulable", "ready", "usable"),
    [
        ([{"type": "Ready", "status": "True"}], False, True, True),
        ([{"type": "Ready", "status": "True"}], True, True, False),
        ([{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}], False, False, False),
        ([], False, False, True),
    ],
)
def test_a_node_takes_pods_unless_it_says_no(
    conditions: list[dict[str, Any]], unschedulable: bool, ready: bool, usable: bool
) -> None:
    node = node_facts({"spec": {"unschedulable": unschedulable}, "status": {"conditions": conditions}})
    assert (node.to_dict()["ready"], node.usable) == (ready, usable)


@pytest.mark.parametrize("label", GPU_LABELS)
def test_every_known_label_tells_of_a_gpu_unless_it_is_false(label: str) -> None:
    labelled, denied = NodeFacts("n", {label: "true"}), NodeFacts("n", {label: "false"})
    assert (labelled.has_gpu, labelled.to_dict()["gpu_hint"]) == (True, f"{label}=true")
    assert (denied.has_gpu, denied.to_dict()["gpu_hint"]) == (False, "")


@pytest.mark.parametrize(("text", "number"), [("2", 2.0), ("100m", 0.1), ("4Gi", 2**32), ("1k", 1000.0), ("0", 0.0)])
def test_quantities(text: str, number: float) -> None:
    assert quantity(text) == pytest.approx(number)
