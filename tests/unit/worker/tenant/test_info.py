"""The labels say who a tenant is, and what limits it, without guessing."""

from __future__ import annotations

from typing import Any

import pytest

from gputax import __version__
from gputax.plan.cells import Setup
from gputax.worker.tenant.info import labels_from, pod_name

SETUP = Setup("yolos-small")
CPU = {"device": "cpu", "engine": "onnx", "threads": 2, "precision": "fp32"}
HOST: dict[str, Any] = {"cpu_model": "A CPU", "quota_cpus": None, "memory_limit_mb": None}
GPUS = [{"name": "A100", "uuid": "GPU-1"}, {"name": "L4", "uuid": "GPU-2"}]


def test_a_cpu_is_called_one() -> None:
    labels = labels_from(SETUP, CPU, HOST, [], {})
    assert (labels["device"], labels["device_label"], labels["device_id"]) == ("cpu", "CPU (A CPU), not a GPU", "")
    assert (labels["workload"], labels["engine"], labels["threads"]) == ("yolos-small", "onnx", "2")
    assert labels["version"] == __version__


def test_limits_that_are_not_there_are_none() -> None:
    labels = labels_from(SETUP, CPU, HOST, [], {})
    assert {labels[key] for key in ("cpu_quota", "memory_limit_mb", "mps_thread_percentage", "mps_memory_limit")} == {
        "none"
    }


def test_limits_are_those_in_force() -> None:
    environ = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "14", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=11702M"}
    labels = labels_from(SETUP, CPU, {**HOST, "quota_cpus": 1.5, "memory_limit_mb": 1031072.5}, [], environ)
    assert (labels["cpu_quota"], labels["memory_limit_mb"]) == ("1.5", "1031072.5")
    assert (labels["mps_thread_percentage"], labels["mps_memory_limit"]) == ("14", "0=11702M")


def test_the_manifest_names_technique_image_pod_and_node() -> None:
    environ = {"GPUTAX_TECHNIQUE": "mps", "GPUTAX_IMAGE": "i@sha256:1", "GPUTAX_POD": "p-1", "GPUTAX_NODE": "n"}
    labels = labels_from(SETUP, CPU, HOST, [], environ)
    assert [labels[key] for key in ("technique", "image", "pod", "node")] == ["mps", "i@sha256:1", "p-1", "n"]
    assert labels_from(SETUP, CPU, HOST, [], environ, technique="mig")["technique"] == "mig"


def test_a_pod_without_a_name_in_its_manifest_has_its_host_name() -> None:
    assert pod_name({"HOSTNAME": "h"}) == ""
    assert pod_name({"HOSTNAME": "h", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == "h"


@pytest.mark.parametrize(
    ("environ", "name", "identity"),
    [
        ({}, "A100", "GPU-1"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, "L4", "GPU-2"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-2"}, "L4", "GPU-2"),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, "A100", "GPU-1"),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-9"}, "A100", "GPU-9"),
        ({"NVIDIA_VISIBLE_DEVICES": "MIG-7"}, "A100", "MIG-7"),
        ({"CUDA_VISIBLE_DEVICES": "7"}, "of unknown name", ""),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, "of unknown name", ""),
    ],
)
def test_a_gpu_has_the_id_that_the_container_was_given(environ: dict[str, str], name: str, identity: str) -> None:
    labels = labels_from(SETUP, {**CPU, "device": "cuda"}, HOST, GPUS, environ)
    assert labels["device_label"] == f"GPU ({name})"
    assert labels["device_id"] == identity


def test_the_engine_knows_its_device_best() -> None:
    facts = {**CPU, "device": "software", "device_name": "gputax software device"}
    labels = labels_from(SETUP, facts, HOST, [], {})
    assert labels["device_label"] == "software device (gputax software device), not a GPU"
