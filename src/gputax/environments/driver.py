"""Find the `libcuda.so.1` that was asked for, and lead the loader of a program to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputax.environments.native_parts import SOFTWARE_DEVICE, native_part
from gputax.environments.own_directory import own_directory
from gputax.errors import PreflightError, UsageError
from gputax.plan.driver import DriverChoice
from gputax.worker.probes.driver_library import SONAME

PROBE_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class DriverLibrary:
    """The library that a program is meant to use."""

    path: Path
    """The file itself, links followed."""
    note: str = ""
    """What must be said aloud: that a device was chosen and not asked for."""
    is_system: bool = False
    """The loader finds it by itself."""


def driver_library(choice: DriverChoice) -> DriverLibrary:
    """Return the library of this choice; what was asked for is used or refused, never replaced in silence."""
    if choice.libcuda:
        return DriverLibrary(given_library(choice.libcuda))
    if choice.device == "software":
        return DriverLibrary(native_part(SOFTWARE_DEVICE).resolve())
    system = probe_system_driver()
    if system["usable"]:
        return DriverLibrary(Path(system["path"]).resolve(), is_system=True)
    if choice.device == "cuda":
        raise PreflightError(
            f"cuda was asked for, but there is no driver with a device: {system['why']}",
            next_step="install NVIDIA's driver, or measure the tool itself with --device software",
        )
    note = f"no GPU here ({system['why']}): device auto chose the software device, whose numbers are no GPU's"
    return DriverLibrary(native_part(SOFTWARE_DEVICE).resolve(), note)


def given_library(text: str) -> Path:
    """Return the file that `--libcuda` names: itself, or the `libcuda.so.1` in a directory."""
    path = Path(text).expanduser()
    path = path / SONAME if path.is_dir() else path
    if not path.is_file():
        raise UsageError(
            "--libcuda names no library", where=str(path), next_step=f"a file, or a directory with {SONAME}"
        )
    return path.resolve()


def probe_system_driver() -> dict[str, Any]:
    """Try the system's library in a process of its own: a driver that hangs or crashes must not take us along."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "gputax.worker.probes.driver_library"],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
        return dict(json.loads(done.stdout))
    except (subprocess.TimeoutExpired, OSError, ValueError) as error:
        return {"path": None, "usable": False, "why": f"{SONAME} cannot be tried: {type(error).__name__}"}


@contextmanager
def library_variables(library: Path, environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Give the variables under which the loader finds this file as `libcuda.so.1`; a link to it lives meanwhile."""
    with own_directory("libcuda") as directory:
        # Always a directory of its own: what else lies beside the library must not be found instead of the system's.
        (directory / SONAME).symlink_to(library)
        rest = environ.get("LD_LIBRARY_PATH", "")
        path = f"{directory}{os.pathsep}{rest}" if rest else str(directory)
        yield {**environ, "LD_LIBRARY_PATH": path}
