"""Images and transcripts of the emulated Xen: archives that Linux unpacks, plain kernels, marked lines."""

from __future__ import annotations

import lzma
import stat
from pathlib import Path

import pytest

from e2e.xen import archive, kernel, scenarios
from e2e.xen.archive import Entry
from e2e.xen.machine import Transcript

HEADER = 110


def unpacked(data: bytes) -> dict[str, tuple[int, bytes]]:
    """Read an archive as the kernel does: mode and content by name."""
    found: dict[str, tuple[int, bytes]] = {}
    at = 0
    while True:
        assert data[at : at + 6] == b"070701"
        fields = [int(data[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        mode, size, name_bytes = fields[1], fields[6], fields[11]
        name = data[at + HEADER : at + HEADER + name_bytes - 1].decode()
        begin = at + HEADER + name_bytes
        begin += -begin % 4
        if name == archive.TRAILER:
            return found
        found[name] = (mode, data[begin : begin + size])
        at = begin + size
        at += -at % 4


def test_an_archive_holds_files_folders_links_and_devices(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin/odd").write_bytes(b"12345")
    (root / "bin/link").symlink_to("/bin/odd")
    (root / "var/cache").mkdir(parents=True)
    (root / "var/cache/large").write_bytes(b"x")
    image = tmp_path / "image"
    entries = [*archive.tree(root, ["var/cache"]), archive.text("etc", "first"), archive.text("etc", "last")]
    archive.write(image, [*entries, archive.folder("dev"), archive.node("dev/console", 5, 1)])
    found = unpacked(image.read_bytes())
    assert found["bin/odd"][1] == b"12345"
    assert stat.S_ISLNK(found["bin/link"][0])
    assert found["bin/link"][1] == b"/bin/odd"
    assert found["etc"][1] == b"last"
    assert stat.S_ISCHR(found["dev/console"][0])
    assert not any(name.startswith("var/cache") for name in found)
    assert list(found).index("dev") < list(found).index("dev/console")


def test_a_kernel_is_found_behind_its_loader() -> None:
    elf = kernel.ELF + bytes(5000)
    image = b"MZ loader " + kernel.XZ + b" not a stream " + lzma.compress(elf, lzma.FORMAT_XZ) + b"the rest"
    assert kernel.uncompressed(image) == elf
    with pytest.raises(ValueError, match="no xz-compressed"):
        kernel.uncompressed(b"MZ" + lzma.compress(b"no kernel", lzma.FORMAT_XZ))


def test_marked_lines_are_read_from_the_console() -> None:
    seen = Transcript("(XEN) boot\n@@ direct copy 1 ab equal\n@@ directory x\nnoise\n@@ direct done\n", 1.0, True)
    assert seen.section("direct") == ["copy 1 ab equal", "done"]
    assert seen.marked()[1] == "directory x"


def test_every_guest_of_the_scenario_is_created_for_its_pod() -> None:
    for guest in scenarios.RING_GUESTS:
        assert f"create {guest.name} {guest.pod}" in scenarios.RING
        assert f'ramdisk = "/boot/{guest.name}.cpio"' in guest.configuration()
    assert isinstance(scenarios.RING_GUESTS[0], scenarios.Guest)
    assert Entry("a", 0).content == b""
