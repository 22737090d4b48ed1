"""The native parts built by `make native`, and how a program's loader is made to find the requested `libcuda.so.1`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputax.environments.process import own_directory
from gputax.errors import PreflightError, UsageError
from gputax.plan.driver import DriverChoice
from gputax.worker.probes.driver_library import NVML_SONAME, SONAME

PACKAGE = Path(__file__).resolve().parent.parent
PACKAGED = "_native"  # where a wheel has the parts (release/wheel.py)
NATIVE_VARIABLE = "GPUTAX_NATIVE"
RUNTIME_VARIABLE = "GPUTAX_CUDA_RUNTIME"
SOFTWARE_DEVICE = "software/libcuda.so.1"
LIBVGPU = "vgpu/libcuda.so.1"
PROXY_PROGRAM = "gputax-proxy"
PARTS: dict[str, str] = {SOFTWARE_DEVICE: "the software device", LIBVGPU: "libvgpu", PROXY_PROGRAM: "the GPU proxy"}
BUILD = "make native"
C_COMPILERS = ("cc", "gcc", "clang")
UNVERSIONED = "libcuda.so"  # what some programs open instead


def native_directory() -> Path:
    """Return $GPUTAX_NATIVE; if that is not set, what the wheel brought, else the build directory of the checkout."""
    given = os.environ.get(NATIVE_VARIABLE)
    if given:
        return Path(given).expanduser().resolve()
    return packaged if (packaged := PACKAGE / PACKAGED).is_dir() else PACKAGE.parent.parent / "native" / "build"


def native_part(name: str) -> Path:
    """Return the path of a part; the error for a missing part names the command that builds it."""
    path = native_directory() / name
    if not path.is_file():
        raise PreflightError(
            f"{PARTS[name]} is not built",
            where=str(path),
            next_step=f"run `{BUILD}` in the checkout (needs gcc and make), "
            f"or set {NATIVE_VARIABLE} to a built directory",
        )
    return path


def missing_parts() -> list[str]:
    """Return the titles of the parts that are not built."""
    return [title for name, title in PARTS.items() if not (native_directory() / name).is_file()]


def c_compiler() -> str | None:
    """Return the C compiler with which the software device makes native code of kernels; without one it interprets."""
    return next(filter(None, map(shutil.which, C_COMPILERS)), None)


PROBE_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class DriverLibrary:
    """The library that a program should load."""

    path: Path
    """The file, with symbolic links resolved."""
    note: str = ""
    """A warning to print when the device was chosen automatically."""
    is_system: bool = False
    """The loader finds it without help."""


def driver_library(choice: DriverChoice) -> DriverLibrary:
    """Return the chosen library; a device requested by name fails instead of falling back to another."""
    if choice.libcuda:
        return DriverLibrary(given_library(choice.libcuda))
    if choice.device == "software":
        return DriverLibrary(native_part(SOFTWARE_DEVICE).resolve())
    system = probe_system_driver()
    if system["usable"]:
        return DriverLibrary(Path(system["path"]).resolve(), is_system=True)
    if choice.device == "cuda":
        raise PreflightError(
            f"--device cuda, but no driver with a device was found: {system['why']}",
            next_step="install NVIDIA's driver, or use --device software to measure the tool itself",
        )
    note = f"no GPU here ({system['why']}): device auto chose the software device; its numbers do not describe a GPU"
    return DriverLibrary(native_part(SOFTWARE_DEVICE).resolve(), note)


def refuse_without_runtime(choice: DriverChoice, environ: Mapping[str, str]) -> None:
    """Refuse an engine on the CUDA runtime where a library of ours would turn it away with its first call."""
    if choice.runtime and environ.get(RUNTIME_VARIABLE) != "1":
        raise UsageError(
            "this engine runs on the CUDA runtime, which libvgpu and the software device take only if asked to",
            where=RUNTIME_VARIABLE,
            next_step="add --cuda-runtime; docs/cuda-runtime.md says what it does and what you decide with it",
        )


def is_native_part(library: Path) -> bool:
    """Whether a library is one of ours."""
    return library.resolve().is_relative_to(native_directory().resolve())


def given_library(text: str) -> Path:
    """Return the library given by `--libcuda`: a file, or a directory with `libcuda.so.1`."""
    path = Path(text).expanduser()
    path = path / SONAME if path.is_dir() else path
    if not path.is_file():
        raise UsageError(
            "--libcuda: no such library", where=str(path), next_step=f"pass a file, or a directory with {SONAME}"
        )
    return path.resolve()


def probe_system_driver() -> dict[str, Any]:
    """Try the system's library in a separate process, because a broken driver can hang or crash."""
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
    """Yield variables that make the loader find this file as `libcuda.so.1`, and the NVML beside it."""
    with own_directory("libcuda") as directory:
        # A separate directory: other libraries next to this one must not replace the system's.
        for name in (SONAME, UNVERSIONED):
            (directory / name).symlink_to(library)
        # libvgpu has its own NVML beside it: the system's would show the whole GPU, or none.
        if library == native_directory() / LIBVGPU and (library.parent / NVML_SONAME).is_file():
            (directory / NVML_SONAME).symlink_to(library.parent / NVML_SONAME)
        rest = environ.get("LD_LIBRARY_PATH", "")
        path = f"{directory}{os.pathsep}{rest}" if rest else str(directory)
        yield {**environ, "LD_LIBRARY_PATH": path}
