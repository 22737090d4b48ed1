"""Turn the facts about a machine into findings, each with the command that fixes it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gputax.doctor.finding import Disk, Finding, Status
from gputax.doctor.hardware import (
    check_cpu,
    check_disk,
    check_governor,
    check_gpu,
    check_load,
    check_memory,
    check_noise,
)
from gputax.doctor.runtimes import check_runtimes
from gputax.doctor.software import (
    check_confinement,
    check_loadgen,
    check_native,
    check_onnxruntime,
    check_python,
    check_tinygrad,
)

__all__ = ["Disk", "Finding", "Status", "diagnose", "inspect_disk"]

CHECKS: tuple[Callable[[Mapping[str, Any]], list[Finding]], ...] = (
    check_python,
    check_loadgen,
    check_onnxruntime,
    check_native,
    check_confinement,
    check_tinygrad,
    check_runtimes,
    check_gpu,
    check_cpu,
    check_governor,
    check_noise,
    check_load,
    check_memory,
)


def diagnose(facts: Mapping[str, Any], disk: Disk) -> list[Finding]:
    """Return all findings, in the order in which to fix them."""
    return [*(finding for check in CHECKS for finding in check(facts)), *check_disk(disk)]


def inspect_disk(models: Path, results: Path) -> Disk:
    """Check free space and write access for models and results; leaves no files and creates no directories."""
    try:
        free_mb: float | None = shutil.disk_usage(_existing(models)).free / (1 << 20)
    except OSError:
        free_mb = None
    return Disk(str(models), free_mb, str(results), _write_problem(_existing(results)))


def _existing(path: Path) -> Path:
    """Return the path or its nearest parent that exists."""
    return next((place for place in (path, *path.absolute().parents) if place.exists()), Path("/"))


def _write_problem(place: Path) -> str:
    try:
        # Only a real write detects a read-only or full file system, especially as root.
        with tempfile.TemporaryFile(dir=place) as probe:
            probe.write(bytes(4096))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        return error.strerror or str(error)
    return ""
