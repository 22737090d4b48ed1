"""torch and nvidia-ml-py in a tenant: they see the device and the memory of our libnvidia-ml, within the quota."""

from __future__ import annotations

import json

from tests.frameworks.conftest import Command

PROGRAM = """
import json
import pynvml
import torch
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
before = pynvml.nvmlDeviceGetMemoryInfo(handle)
held = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
after = pynvml.nvmlDeviceGetMemoryInfo(handle)
print(json.dumps({
    "names": [pynvml.nvmlDeviceGetName(handle), torch.cuda.get_device_name(0)],
    "totals": [before.total, torch.cuda.get_device_properties(0).total_memory],
    "used": after.used - before.used,
    "processes": len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle)),
    "torch_count": torch.cuda.device_count(),
}))
"""


def test_torch_and_nvml_agree_on_the_device_of_a_tenant(in_environment: Command) -> None:
    done = in_environment("bare+proxy", PROGRAM, "--soft-kernels", "null")
    seen = json.loads(done.stdout)
    assert set(seen["names"]) == {"gputax software device, null kernels of 0 ns"}
    assert len(set(seen["totals"])) == 1
    assert 64 << 20 <= seen["used"] < 128 << 20
    assert seen["processes"] == seen["torch_count"] == 1
