"""The Debian of dom0: made once by debootstrap (root), kept, and never changed afterwards."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from e2e.xen import kernel

SUITE = "bookworm"
# Installed, with what they need. Kernel and hypervisor are only unpacked: Debian's own initramfs would take minutes.
INSTALLED = (
    "xen-utils-4.17", "xenstore-utils", "erofs-utils", "iproute2", "kmod", "python3-minimal", "busybox-static",
    "containerd", "runc", "libgcc-s1",
)  # fmt: skip
UNPACKED = ("xen-hypervisor-4.17-amd64", "linux-image-amd64")
HOST = ("qemu-system-x86", "debootstrap")
# What dom0 does not need in its memory, from which it runs.
WITHOUT = (
    "boot", "debootstrap", "dev", "proc", "sys", "run", "tmp", "home", "media", "mnt", "srv", "var/cache",
    "var/lib/apt", "var/log", "usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info",
    "usr/share/zoneinfo", "usr/share/perl", "usr/lib/modules", "usr/lib/firmware", "usr/lib/x86_64-linux-gnu/perl",
    "usr/lib/x86_64-linux-gnu/perl-base", "usr/lib/x86_64-linux-gnu/gconv", "usr/include", "usr/lib/udev",
    "usr/lib/xen-4.17/boot", "usr/bin/perl", "usr/bin/perl5.36.0", "usr/lib/cni", "var/lib/dpkg",
)  # fmt: skip
# Large, and only for scenarios with pods.
CONTAINERS = (
    "usr/bin/containerd", "usr/bin/ctr", "usr/bin/containerd-shim", "usr/bin/containerd-shim-runc-v1",
    "usr/bin/containerd-shim-runc-v2", "usr/sbin/runc", "usr/bin/runc",
)  # fmt: skip


def cache() -> Path:
    """Return where all of it is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gputax" / "xen"


@dataclass(frozen=True)
class Base:
    """What the images are made of."""

    root: Path
    hypervisor: Path
    vmlinux: Path
    modules: Path  # the folder of the kernel's version


def _install_tools() -> None:
    """Install the host's programs that are missing."""
    if all(shutil.which(tool) for tool in ("qemu-system-x86_64", "debootstrap")):
        return
    subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", *HOST], check=True, timeout=1800)


def _debootstrap(root: Path) -> None:
    unfinished = root.with_name(root.name + ".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    include = ",".join(INSTALLED)
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={include}", SUITE, str(unfinished)], check=True, timeout=3600
    )
    downloads = unfinished / "var/cache/gputax"
    downloads.mkdir(parents=True)
    names = subprocess.run(
        ["apt-cache", "depends", "linux-image-amd64"], check=True, capture_output=True, text=True
    ).stdout  # the package of the version that is current
    current = next(word for word in names.split() if word.startswith("linux-image-6"))
    subprocess.run(["apt-get", "download", UNPACKED[0], current], check=True, cwd=downloads, timeout=1800)
    for package in downloads.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(unfinished)], check=True)
        package.unlink()
    unfinished.rename(root)


def prepare() -> Base:
    """Return the base, making what is not there yet."""
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    _install_tools()
    mark = hashlib.sha256(" ".join((SUITE, *INSTALLED, *UNPACKED)).encode()).hexdigest()[:12]
    root = folder / f"rootfs-{mark}"
    if not root.exists():
        _debootstrap(root)
    image = max((root / "boot").glob("vmlinuz-*"))
    vmlinux = folder / f"vmlinux-{image.name.removeprefix('vmlinuz-')}"
    kernel.extract(image, vmlinux)
    packed = next((root / "boot").glob("xen-4.17-*.gz"))
    hypervisor = folder / packed.stem
    if not hypervisor.exists():
        hypervisor.write_bytes(gzip.decompress(packed.read_bytes()))
    return Base(root, hypervisor, vmlinux, root / "usr/lib/modules" / image.name.removeprefix("vmlinuz-"))
