"""python -m release.wheel: the wheel that carries the native parts, tagged with the glibc that they need.

hatchling makes the wheel of the Python parts; this adds the native ones to it. So an editable installation and the
image, which bring their own native parts, need no build step of ours.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import platform
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from release.symbols import Needs, Version, needs

REPOSITORY = Path(__file__).resolve().parent.parent
FOLDER = "gputax/_native"
PROGRAMS = ("software/libcuda.so.1", "vgpu/libcuda.so.1", "vgpu/libnvidia-ml.so.1", "gputax-proxy")
KERNELS = "kernels"
EXECUTABLE, PLAIN = 0o100755, 0o100644
# hatchling's date for every file: the same sources give the same wheel.
DATE = (2020, 2, 2, 0, 0, 0)


class WheelError(Exception):
    """The wheel cannot be built, and why."""


def main() -> int:
    """Build it and print its path."""
    parser = argparse.ArgumentParser(prog="python -m release.wheel", description=__doc__)
    parser.add_argument("--native", type=Path, default=REPOSITORY / "native/build", help="what `make native` built")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "dist", help="directory of the wheel")
    options = parser.parse_args()
    try:
        print(build(options.native, options.out))
    except WheelError as error:
        print(f"release.wheel: {error}", file=sys.stderr)
        return 1
    return 0


def build(native: Path, out: Path) -> Path:
    """Build the wheel of this checkout with the native parts of `native`."""
    missing = [name for name in (*PROGRAMS, KERNELS) if not (native / name).exists()]
    if missing:
        raise WheelError(f"{', '.join(missing)} not in {native}. Next: make native")
    with tempfile.TemporaryDirectory() as scratch:
        pure = _pure_wheel(Path(scratch))
        stripped = {name: _stripped(native / name, Path(scratch) / name) for name in PROGRAMS}
        tag = platform_tag({name: needs(path) for name, path in stripped.items()}, platform.machine())
        kernels = {f"{KERNELS}/{path.name}": path for path in sorted((native / KERNELS).iterdir())}
        out.mkdir(parents=True, exist_ok=True)
        return with_parts(pure, {**stripped, **kernels}, tag, out)


def platform_tag(parts: Mapping[str, Needs], machine: str) -> str:
    """Return the platform tag (PEP 600) of the oldest glibc on which all parts load; refuse what no tag allows."""
    for name, each in parts.items():
        if each.foreign:
            raise WheelError(f"{name} needs {', '.join(sorted(each.foreign))}, which manylinux does not allow")
    newest: Version = max(each.glibc for each in parts.values())
    return f"manylinux_{newest[0]}_{newest[1]}_{machine}"


def with_parts(pure: Path, parts: Mapping[str, Path], tag: str, out: Path) -> Path:
    """Write a copy of the wheel with these files in it, under its new tag."""
    name = pure.name.replace("-any.whl", f"-{tag}.whl")
    target = out / name
    part = target.with_suffix(".part")
    with zipfile.ZipFile(pure) as source, zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as wheel:
        record = []
        for info in source.infolist():
            if info.filename.endswith(".dist-info/RECORD"):
                listing = info.filename
                continue
            content = source.read(info)
            if info.filename.endswith(".dist-info/WHEEL"):
                content = retagged(content.decode(), tag).encode()
            record.append(_write(wheel, info.filename, content, info.external_attr >> 16 or PLAIN))
        for relative, path in parts.items():
            mode = EXECUTABLE if relative in PROGRAMS else PLAIN
            record.append(_write(wheel, f"{FOLDER}/{relative}", path.read_bytes(), mode))
        _write(wheel, listing, "".join([*record, f"{listing},,\n"]).encode(), PLAIN)
    part.replace(target)
    return target


def retagged(text: str, tag: str) -> str:
    """Return the WHEEL file of a wheel that is for one platform; it needs no particular Python version."""
    lines = [line for line in text.splitlines() if line and not line.startswith(("Tag:", "Root-Is-Purelib:"))]
    return "\n".join([*lines, "Root-Is-Purelib: false", f"Tag: py3-none-{tag}"]) + "\n"


def _write(wheel: zipfile.ZipFile, name: str, content: bytes, mode: int) -> str:
    """Write one file and return its line of RECORD."""
    info = zipfile.ZipInfo(name, DATE)
    info.external_attr, info.compress_type = mode << 16, zipfile.ZIP_DEFLATED
    wheel.writestr(info, content)
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def _pure_wheel(scratch: Path) -> Path:
    words = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "-q",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
    ]
    done = subprocess.run([*words, "--wheel-dir", scratch, REPOSITORY], capture_output=True, text=True)
    found = sorted(scratch.glob("gputax-*-any.whl"))
    if done.returncode != 0 or not found:
        raise WheelError(f"pip cannot build the Python parts: {done.stderr.strip() or 'no wheel was written'}")
    return found[0]


def _stripped(path: Path, target: Path) -> Path:
    """Copy a program without its debugging symbols, which are most of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["strip", "--strip-unneeded", "-o", target, path], check=True)
    return target


if __name__ == "__main__":
    sys.exit(main())
