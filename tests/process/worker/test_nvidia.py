"""The processes that NVML lists: children of ours do not count as foreign."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from gputax.worker.probes.nvidia import NvmlSampler
from tests.standins.nvml import nvml as nvml


def sampler(root: Path = Path("/"), **options: Any) -> NvmlSampler:
    opened = NvmlSampler.open(root=root, **options)
    assert isinstance(opened, NvmlSampler)
    return opened


def test_a_real_child_is_no_foreigner(nvml: Any) -> None:
    with subprocess.Popen(["sleep", "5"]) as child:
        nvml.pids = [os.getpid(), child.pid, 1]
        assert sampler().sample().foreign_pids == (1,)
        child.kill()
