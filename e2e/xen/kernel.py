"""Debian's kernel without its compression: Xen boots it at once, where unpacking takes a minute in an emulator."""

from __future__ import annotations

import lzma
from pathlib import Path

XZ = b"\xfd7zXZ\0"
ELF = b"\x7fELF"


def uncompressed(image: bytes) -> bytes:
    """Return the ELF file inside of a bzImage that was compressed with xz."""
    at = image.find(XZ)
    while at >= 0:
        try:
            found = lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(image[at:])
        except lzma.LZMAError:
            found = b""
        if found.startswith(ELF):
            return found
        at = image.find(XZ, at + 1)
    message = "no xz-compressed ELF kernel in this image"
    raise ValueError(message)


def extract(image: Path, to: Path) -> None:
    """Write the kernel of an image, once."""
    if not to.exists():
        to.write_bytes(uncompressed(image.read_bytes()))
