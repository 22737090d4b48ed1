"""Environment variables for the product's image, and checks of a container's CPU limit."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from gputax.environments.driver import RUNTIME_VARIABLE, refuse_without_runtime
from gputax.environments.environment import Described
from gputax.errors import UsageError
from gputax.kubernetes.objects import NATIVE, SOFTWARE_DIRECTORY
from gputax.plan.driver import DriverChoice
from gputax.worker.probes.limits import cpu_allowance

NATIVE_VARIABLES = {"GPUTAX_NATIVE": NATIVE}
SOFTWARE_SETTINGS = "GPUTAX_SOFT_"


def driver_variables(driver: DriverChoice, gpus: int) -> dict[str, str]:
    """Return the variables with which a program in the image loads the requested driver.

    With a GPU, the container runtime mounts NVIDIA's library where the loader finds it without help.
    """
    if not driver.needed:
        return {}
    if driver.libcuda:
        raise UsageError(
            "--libcuda is a local file, which is not visible in a container",
            next_step="use --device software or cuda, or --env bare",
        )
    software = driver.device == "software" or (driver.device == "auto" and not gpus)
    if not software:
        return {}
    refuse_without_runtime(driver, os.environ)
    return {"LD_LIBRARY_PATH": SOFTWARE_DIRECTORY, **software_settings(os.environ), **runtime_setting(os.environ)}


def runtime_setting(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variable with which our own libcuda.so.1 takes programs on the CUDA runtime."""
    return {name: value for name, value in environ.items() if name == RUNTIME_VARIABLE}


def software_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the software device's settings: results are comparable only if both sides use the same."""
    return {name: value for name, value in environ.items() if name.startswith(SOFTWARE_SETTINGS)}


def software_note(driver: DriverChoice, gpus: int) -> str:
    """Return the warning for a device that was chosen automatically."""
    if driver.needed and driver.device == "auto" and not gpus:
        return "no GPU was requested (--gpus): device auto chose the software device; its numbers do not describe a GPU"
    return ""


def local_cpus() -> int:
    """Return the default of `--cpus`: the thread count of a local bare worker, so that the two are comparable."""
    return cpu_allowance().threads


def limit_reasons(described: Described, cpus: int) -> list[str]:
    """List why the CPU limit does not seem to be enforced: neither quota nor affinity has that size."""
    quota, affinity = described.quota_cpus, described.affinity
    if quota == cpus or (quota is None and len(affinity) == cpus) or (quota or 0) >= len(affinity) == cpus:
        return []
    return [f"the worker may use {quota or len(affinity)} CPUs, but the container's limit is {cpus}"]


def lacks_gputax(words: str) -> bool:
    """Whether Python reports that gputax is not installed; some of its messages quote the name."""
    return re.search(r"no module named '?gputax", words.lower()) is not None
