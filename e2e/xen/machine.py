"""One boot of Xen in QEMU without hardware virtualisation: proves function, says nothing of time."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from e2e.xen import archive, images
from e2e.xen.archive import Entry
from e2e.xen.base import Base

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
MARK = "@@ "
# The lowest class: an emulated boot takes both cores for minutes, and others measure here.
GENTLY = ("chrt", "--idle", "0", "nice", "-n", "19")
HYPERVISOR = "console=com1 com1=115200,8n1 dom0_mem=1536M,max:1536M loglvl=warning guest_loglvl=warning"
KERNEL = "console=hvc0 quiet panic=5 mitigations=off"


@dataclass(frozen=True)
class Transcript:
    """What a boot printed."""

    text: str
    seconds: float
    ended: bool  # by itself, before its time was over

    def marked(self) -> list[str]:
        """The lines that a scenario printed for its test."""
        return [line.partition(MARK)[2] for line in self.text.splitlines() if MARK in line]

    def section(self, name: str) -> list[str]:
        """The lines of `@@ NAME TEXT`, without the name."""
        return [line[len(name) + 1 :] for line in self.marked() if line.startswith(f"{name} ")]


def command(base: Base, initramfs: Path) -> list[str]:
    """Return the words that start the machine."""
    return [
        *GENTLY, "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "qemu64,+svm,+npt", "-smp", "2",
        "-m", "3072", "-display", "none", "-no-reboot", "-nic", "none", "-serial", "stdio", "-monitor", "none",
        "-kernel", str(base.hypervisor), "-append", HYPERVISOR,
        "-initrd", f"{base.vmlinux} {KERNEL},{initramfs}",
    ]  # fmt: skip


def boot(
    base: Base, build: Path, scenario: str, files: Iterable[Entry], folder: Path, timeout_s: float, pods: bool = False
) -> Transcript:
    """Boot dom0 with this scenario, with containerd in it for pods, and wait until it powers off."""
    initramfs = folder / "dom0.cpio"
    archive.write(initramfs, images.dom0(base, build, scenario, files, pods))
    log = folder / "console.log"
    begun = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            command(base, initramfs), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
        try:
            process.wait(timeout_s)
            ended = True
        except subprocess.TimeoutExpired:
            ended = False
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    initramfs.unlink()
    text = ANSI.sub("", log.read_bytes().decode(errors="replace")).replace("\r", "")
    return Transcript(text, time.monotonic() - begun, ended)
