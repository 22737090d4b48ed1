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
    "deep_nesting": [BAD] * 4,
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
