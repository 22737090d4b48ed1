"""What dom0 and a guest boot from: Debian's programs, our own, and modules in the order of their loading."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from e2e.xen import archive
from e2e.xen.archive import Entry
from e2e.xen.base import CONTAINERS, WITHOUT, Base

REPOSITORY = Path(__file__).parents[2]
DOM0_MODULES = (
    "drivers/xen/xen-privcmd", "drivers/xen/xenfs/xenfs", "drivers/xen/xen-evtchn", "drivers/xen/xen-gntdev",
    "drivers/xen/xen-gntalloc", "drivers/block/loop", "drivers/block/xen-blkback/xen-blkback", "fs/overlayfs/overlay",
)  # fmt: skip
GUEST_MODULES = (
    "drivers/xen/xen-evtchn", "drivers/xen/xen-gntdev", "drivers/xen/xen-gntalloc", "crypto/crc32c_generic",
    "lib/libcrc32c", "fs/erofs/erofs", "fs/overlayfs/overlay", "drivers/block/xen-blkfront",
)  # fmt: skip
LIBRARIES = ("lib64/ld-linux-x86-64.so.2", "lib/x86_64-linux-gnu/libc.so.6", "lib/x86_64-linux-gnu/libm.so.6")
ROOT_FOLDERS = ("bin", "lib64", "lib", "lib/x86_64-linux-gnu", "tmp", "etc")
FOLDERS = ("dev", "proc", "sys", "run", "tmp", "modules", "etc/gputax")


def _modules(base: Base, names: Iterable[str]) -> Iterator[Entry]:
    for order, name in enumerate(names, 10):
        source = base.modules / "kernel" / f"{name}.ko"
        yield archive.program(f"modules/{order}-{source.name}", source)


def _found(root: Path, relative: str) -> Path:
    """The file behind a library's name, inside of the tree: its links are absolute there."""
    path = root / "usr" / relative
    while path.is_symlink():
        target = path.readlink()
        path = root / target.relative_to("/") if target.is_absolute() else path.parent / target
    return path


def guest(base: Base, build: Path, orders: Iterable[str] = ()) -> Iterator[Entry]:
    """A guest's first file system; with orders it runs them and powers off."""
    yield from (archive.folder(name) for name in ("bin", "lib64", "lib", "lib/x86_64-linux-gnu", "etc", *FOLDERS))
    yield archive.node("dev/console", 5, 1)
    yield archive.program("init", build / "guest/init")
    for name in ("xen-link", "xen-session"):
        yield archive.program(f"bin/{name}", build / "guest" / name)
    for name in ("op_bench", "byte_digest"):
        yield archive.program(f"bin/{name}", build / "tests" / name)
    yield archive.program("lib/libcuda.so.1", build / "vgpu/libcuda.so.1")
    for name in ("micro.ptx", "vector.ptx"):
        yield archive.program(f"etc/gputax/{name}", REPOSITORY / "native/kernels" / name)
    for name in LIBRARIES:
        yield archive.program(name, _found(base.root, name))
    yield from _modules(base, GUEST_MODULES)
    if orders:
        yield archive.text("etc/gputax/orders", "".join(f"{order}\n" for order in orders))


def small_root(base: Base, build: Path) -> Iterator[Entry]:
    """A container's root file system below /opt/root: busybox under a few names, and the program that digests bytes."""
    yield from (archive.folder(f"opt/root/{name}".rstrip("/")) for name in ("", *ROOT_FOLDERS))
    yield archive.program("opt/root/bin/busybox", base.root / "usr/bin/busybox")
    for name in ("sh", "cat", "echo", "id", "sleep", "hostname", "tty", "stty", "touch", "ls", "grep", "true"):
        yield Entry(f"opt/root/bin/{name}", 0o120777, b"busybox")
    yield archive.program("opt/root/bin/byte_digest", build / "tests/byte_digest")
    yield archive.program("opt/root/vector.ptx", REPOSITORY / "native/kernels/vector.ptx")
    for name in LIBRARIES:
        yield archive.program(f"opt/root/{name}", _found(base.root, name))


def dom0(base: Base, build: Path, scenario: str, files: Iterable[Entry], pods: bool = False) -> Iterator[Entry]:
    """dom0's whole file system, in memory: Debian, our programs under /opt/gputax, and the scenario that it runs."""
    yield from archive.tree(base.root, WITHOUT if pods else (*WITHOUT, *CONTAINERS))
    yield from (archive.folder(name) for name in (*FOLDERS, "boot", "var/log", "var/log/xen", "opt", "opt/gputax"))
    yield archive.node("dev/console", 5, 1)
    yield archive.program("init", REPOSITORY / "e2e/xen/dom0-init.sh")
    for name in ("gputax-proxy", "xen-link", "xen-session", "tests/byte_digest", "tests/op_bench"):
        yield archive.program(f"opt/gputax/{Path(name).name}", build / name)
    yield archive.program("opt/gputax/libcuda.so.1", build / "software/libcuda.so.1")
    for name in ("micro.ptx", "vector.ptx"):
        yield archive.program(f"opt/gputax/{name}", REPOSITORY / "native/kernels" / name)
    yield archive.program("opt/gputax/status.py", REPOSITORY / "e2e/xen/status.py")
    yield Entry("boot/vmlinux", 0o100644, source=base.vmlinux)
    yield from _modules(base, DOM0_MODULES)
    yield archive.text("opt/gputax/scenario.sh", scenario, 0o755)
    yield from files
