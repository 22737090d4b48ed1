"""A tenant's PTX text is hostile: the proxy refuses it, or ends that tenant's context, and serves everybody else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

HOSTILE = Path(__file__).parents[2] / "programs" / "hostile.py"
BAD, FULL = "CUDA_ERROR_INVALID_PTX", "CUDA_ERROR_OUT_OF_MEMORY"
NEIGHBOUR = """
import sys
import gpu
from gpu import *
import numpy as np
gpu.begin()
numbers = np.arange(1000, dtype=np.uint32)
there = to_device(numbers)
print("ready", flush=True)
sys.stdin.readline()
assert (from_device(there, numbers) == numbers).all()
print("unharmed")
"""
ANSWERS = {
    "branch_targets_twice": [BAD],
    "branch_targets_and_label": [BAD, BAD],
    "index_behind_the_list": ["CUDA_ERROR_INVALID_PC"],
    "exclamation_marks": ["CUDA_SUCCESS", "CUDA_SUCCESS", "1", "2"],
    "deep_nesting": [BAD, BAD, BAD, "CUDA_ERROR_HARDWARE_STACK_ERROR"],
    "padding_of_parameters": ["0"],
    "large_variables": [FULL, FULL, FULL, "True", "CUDA_SUCCESS"],
    "variables_in_bodies": ["True", "CUDA_SUCCESS"],
    "code_that_grows": [FULL, FULL, FULL, "True"],
}
QUOTA_MB = {"large_variables": "8", "variables_in_bodies": "64", "code_that_grows": "16"}


def answers_beside_a_neighbour(nursery: Any, case: str) -> Any:
    """What the hostile tenant got, after its neighbour and the proxy were seen to go on."""
    proxy = nursery.proxy("--memory-mb", QUOTA_MB.get(case, "1024"))
    neighbour = nursery.start(NEIGHBOUR, proxy.environment())
    assert neighbour.stdout.readline() == "ready\n"
    found = json.loads(nursery.run(HOSTILE, proxy.environment(), case))
    assert neighbour.communicate("go\n", timeout=60)[0] == "unharmed\n"
    assert proxy.stop() == 0, proxy.process.stderr.read()
    return found


@pytest.mark.parametrize("case", list(ANSWERS))
def test_hostile_text_harms_nobody(nursery: Any, case: str) -> None:
    assert answers_beside_a_neighbour(nursery, case) == ANSWERS[case]


ENDLESS = """
import gpu
from cuda.bindings import driver as cu
gpu.begin()
calls = "".join(f".func f{i}() {{ call f{i + 1}; call f{i + 1}; }}\\n" for i in reversed(range(18)))
text = ".version 8.0\\n.target sm_80\\n.address_size 64\\n.func f18() {" + "membar.gl;" * 1000 + "}\\n" + calls
print("ready", flush=True)
cu.cuModuleLoadData(text.encode() + b".entry k() { call f0; }\\0")
"""


@pytest.mark.parametrize("transport", ["shm", "unix-socket"])
def test_loading_ends_when_the_tenant_has_gone(nursery: Any, transport: str) -> None:
    """The load would take half a minute; nobody waits for it."""
    proxy = nursery.proxy(device={"GPUTAX_SOFT_TIMEOUT_S": "120"})
    tenant = nursery.start(ENDLESS, proxy.environment(transport))
    assert tenant.stdout.readline() == "ready\n"
    proxy.wait_for(lambda status: status["tenants"][0]["calls"].get("cuModuleLoadData", 0) == 1)
    tenant.kill()
    proxy.wait_for(lambda status: not status["tenants"], seconds=3)
