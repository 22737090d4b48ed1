"""Where the native parts are: the software device, libvgpu and the GPU proxy, built by `make native`."""

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
    """Return $GPUTAX_NATIVE, else the build directory of the checkout."""
    given = os.environ.get(VARIABLE)
    return Path(given).expanduser().resolve() if given else PACKAGE.parent.parent / "native" / "build"


def native_part(name: str) -> Path:
    """Return a part's file, or the command that builds it."""
    path = native_directory() / name
    if not path.is_file():
        raise PreflightError(
            f"{PARTS[name]} is not built",
            where=str(path),
            next_step=f"`{BUILD}` in the checkout (gcc and make are enough), or set {VARIABLE} to a built directory",
        )
    return path


def missing_parts() -> list[str]:
    """Return what is not built, in words."""
    return [title for name, title in PARTS.items() if not (native_directory() / name).is_file()]
