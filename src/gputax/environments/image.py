"""What the product's image holds, and what its limits must look like from inside."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from gputax.environments.described import Described
from gputax.errors import UsageError
from gputax.kubernetes.objects import NATIVE, SOFTWARE_DIRECTORY
from gputax.plan.driver import DriverChoice
from gputax.worker.probes.cpu_allowance import cpu_allowance

NATIVE_VARIABLES = {"GPUTAX_NATIVE": NATIVE}
SOFTWARE_SETTINGS = "GPUTAX_SOFT_"


def driver_variables(driver: DriverChoice, gpus: int) -> dict[str, str]:
    """Return the variables under which a program in the image finds the driver that was asked for.

    With a GPU the container's runtime has put NVIDIA's library where the loader looks by itself.
    """
    if not driver.needed:
        return {}
    if driver.libcuda:
        raise UsageError(
            "--libcuda is a file of this machine, which a container does not see",
            next_step="use --device software or cuda, or --env bare",
        )
    software = driver.device == "software" or (driver.device == "auto" and not gpus)
    return {"LD_LIBRARY_PATH": SOFTWARE_DIRECTORY, **software_settings(os.environ)} if software else {}


def software_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return how fast and how large the software device shall be: there as here, or the two could not be compared."""
    return {name: value for name, value in environ.items() if name.startswith(SOFTWARE_SETTINGS)}


def software_note(driver: DriverChoice, gpus: int) -> str:
    """Return what must be said aloud where a device was chosen and not asked for."""
    if driver.needed and driver.device == "auto" and not gpus:
        return "no GPU was asked for (--gpus): device auto chose the software device, whose numbers are no GPU's"
    return ""


def local_cpus() -> int:
    """Return the CPUs of a place without `--cpus`: the threads of a bare worker here, so that both are equal."""
    return cpu_allowance().threads


def limit_reasons(described: Described, cpus: int) -> list[str]:
    """Say what speaks against the CPU limit being in force: neither a quota nor an affinity of that size."""
    quota, affinity = described.quota_cpus, described.affinity
    if quota == cpus or (quota is None and len(affinity) == cpus) or (quota or 0) >= len(affinity) == cpus:
        return []
    return [f"the worker may use {quota or len(affinity)} CPUs, its container was given {cpus}"]


def lacks_gputax(words: str) -> bool:
    """Whether an interpreter's last words are that it has no gputax; it quotes the name in some of its messages."""
    return re.search(r"no module named '?gputax", words.lower()) is not None
