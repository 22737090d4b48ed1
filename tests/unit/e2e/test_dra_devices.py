"""The stand-in DRA driver without a kubelet: what it publishes, what a container gets, and how it lies."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.device_offer import GPU_MEMORY_MB, PipeDirectories
from e2e.dra_devices import PrepareError, cdi_spec, device_classes, dra_switches, slices

PIPES = PipeDirectories("/pipes/served", "/pipes/empty")
HONEST = dra_switches(())


def claim(device: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
    config = [{"source": "FromClaim", "opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}]
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": device}
    devices = {"results": [result], **({"config": config} if parameters else {})}
    return {"metadata": {"uid": "u"}, "status": {"allocation": {"devices": devices}}}


def sharing(strategy: str, **config: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig",
        "sharing": {"strategy": strategy, "mpsConfig": config},
    }


def edits(device: str, parameters: dict[str, Any] | None = None, *words: str) -> dict[str, Any]:
    spec, told = cdi_spec(claim(device, parameters), PIPES, dra_switches(words), 2)
    (described,) = spec["devices"]
    assert told[0]["cdi_device_ids"] == [f"{spec['kind']}={described['name']}"]
    return dict(described["containerEdits"])


def test_a_pool_is_counters_and_devices_that_take_of_them() -> None:
    counters, devices = (each["spec"] for each in slices(2, "n", 5))
    assert "devices" not in counters
    assert "sharedCounters" not in devices
    assert {each["name"] for each in counters["sharedCounters"]} == {"gpu-0", "gpu-1"}
    assert all(each["pool"] == {"name": "n", "generation": 5, "resourceSliceCount": 2} for each in (counters, devices))
    taken = {each["name"]: each["consumesCounters"][0]["counters"]["slices"]["value"] for each in devices["devices"]}
    assert taken["gpu-0"] == "7"
    assert sum(int(value) for name, value in taken.items() if name.startswith("gpu-0-mig-1g10gb")) == 7
    assert [each["metadata"]["name"] for each in device_classes()] == ["gpu.nvidia.com", "mig.nvidia.com"]


def test_a_container_gets_the_node_of_its_gpu_and_the_memory_of_its_share() -> None:
    whole = edits("gpu-1")
    assert whole["deviceNodes"] == [{"path": "/dev/nvidia1", "hostPath": "/dev/null"}]
    assert f"GPUTAX_SOFT_MEMORY_MB={GPU_MEMORY_MB}" in whole["env"]
    assert "NVIDIA_VISIBLE_DEVICES=void" in whole["env"], "as NVIDIA's driver does"
    assert "GPUTAX_SOFT_MEMORY_MB=10240" in edits("gpu-0-mig-1g10gb-1-3")["env"]
    capped = edits("gpu-0", sharing("MPS", defaultPinnedDeviceMemoryLimit="1000Mi"))
    assert "GPUTAX_SOFT_MEMORY_MB=1000" in capped["env"]
    assert capped["mounts"][0]["hostPath"] == "/pipes/served"


def test_lies_and_unknown_parameters() -> None:
    assert edits("gpu-0", None, "other-gpu")["deviceNodes"][0]["path"] == "/dev/nvidia1"
    by_name = edits("gpu-0", sharing("MPS", defaultPinnedDeviceMemoryLimit="1000Mi"), "no-daemon")
    assert by_name["mounts"][0]["hostPath"] == "/pipes/empty"
    assert f"GPUTAX_SOFT_MEMORY_MB={GPU_MEMORY_MB}" in by_name["env"]
    with pytest.raises(PrepareError, match="told to fail"):
        edits("gpu-0", None, "prepare-fails")
    with pytest.raises(PrepareError, match="unknown strategy"):
        edits("gpu-0", sharing("Magic"))
    with pytest.raises(PrepareError, match="unknown parameters"):
        edits("gpu-0", {"apiVersion": "resource.nvidia.com/v9", "kind": "GpuConfig"})
    with pytest.raises(ValueError, match="unknown switches: lie"):
        dra_switches(["lie"])
    assert dra_switches(["gpus=3"]).gpus == 3
    assert HONEST.gpus is None
