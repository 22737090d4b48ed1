"""Locate the native parts built by `make native`: the software device, libvgpu and the GPU proxy."""

from __future__ import annotations

import os
from pathlib import Path

from gputax.errors import PreflightError

PACKAGE = Path(__file__).resolve().parent.parent
VARIABLE = "GPUTAX_NATIVE"
SOFTWARE_DEVICE = "software/libcuda.so.1"
LIBVGPU = "vgpu/libcuda.so.1"
PROXY = "gputax-proxy"
PARTS: dict[str, str] = {SOFTWARE_DEVICE: "the software device", LIBVGPU: "libvgpu", PROXY: "the GPU proxy"}
BUILD = "make native"


def native_directory() -> Path:
    """Return $GPUTAX_NATIVE, or the build directory of the checkout if that is not set."""
    given = os.environ.get(VARIABLE)
    return Path(given).expanduser().resolve() if given else PACKAGE.parent.parent / "native" / "build"


def native_part(name: str) -> Path:
    """Return the path of a part; the error for a missing part names the command that builds it."""
    path = native_directory() / name
    if not path.is_file():
        raise PreflightError(
            f"{PARTS[name]} is not built",
            where=str(path),
            next_step=f"run `{BUILD}` in the checkout (needs gcc and make), or set {VARIABLE} to a built directory",
        )
    return path


def missing_parts() -> list[str]:
    """Return the titles of the parts that are not built."""
    return [title for name, title in PARTS.items() if not (native_directory() / name).is_file()]
