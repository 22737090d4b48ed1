"""A client that speaks the proxy's socket transport by hand, for tests of what a tenant may send."""

from __future__ import annotations

import re
import socket
import struct
from pathlib import Path

HEADER = struct.Struct("<IIQQiI")
MESSAGE, BULK, POSTED = 0x6D677078, 0x6B6C7562, 1
BULK_PIECE = 1 << 20  # the proxy takes no larger ones than twice this


class Hostile:
    """A client that speaks the socket transport by hand and keeps no rule that it does not like."""

    def __init__(self, path: Path, fingerprint: int) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(str(path))
        self.socket.sendall(struct.pack("<8sIIQ16s24s", b"gputaxW", 1, 0, fingerprint, b"unix-socket", b""))
        answer = self._receive(1024)
        assert struct.unpack_from("<8sII", answer)[2] == 0, answer[16:200]
        self.sequence = 0

    def __enter__(self) -> Hostile:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise ConnectionError
            data += part
        return data

    def send(self, call: int, body: bytes, bulk: int = 0, flags: int = 0, claimed: int | None = None) -> None:
        self.sequence += 1
        size = len(body) if claimed is None else claimed
        header = HEADER.pack(call, size, self.sequence, bulk, 0, flags)
        self.socket.sendall(struct.pack("<II", MESSAGE, HEADER.size + size) + header + body)

    def send_bulk(self, data: bytes) -> None:
        self.socket.sendall(struct.pack("<II", BULK, len(data)) + data)

    def answer(self) -> tuple[int, bytes]:
        kind, count = struct.unpack("<II", self._receive(8))
        assert kind == MESSAGE
        _, body, sequence, _, status, _ = HEADER.unpack(self._receive(HEADER.size))
        assert (sequence, body) == (self.sequence, count - HEADER.size)
        return status, self._receive(body)

    def ask(self, call: int, *words: int, tail: bytes = b"", bulk: bytes = b"") -> tuple[int, bytes]:
        """The status and the body of an answered call whose fixed part is 8-byte words."""
        self.send(call, struct.pack(f"<{len(words)}Q", *words) + tail, bulk=len(bulk))
        for at in range(0, len(bulk), BULK_PIECE):
            self.send_bulk(bulk[at : at + BULK_PIECE])
        return self.answer()

    def ask_word(self, call: int, *words: int, tail: bytes = b"", bulk: bytes = b"") -> int:
        """The first 8 bytes of an answer that must be a success."""
        status, body = self.ask(call, *words, tail=tail, bulk=bulk)
        assert status == 0, (call, status)
        word: int = struct.unpack_from("<Q", body)[0]
        return word


def read_wire_facts(build: Path) -> tuple[int, dict[str, int]]:
    """The fingerprint of a build's messages, and the number of each call."""
    text = (build / "generated" / "calls.h").read_text(encoding="utf-8")
    fingerprint = re.search(r"CALLS_FINGERPRINT UINT64_C\((0x[0-9a-f]+)\)", text)
    assert fingerprint is not None
    return int(fingerprint[1], 16), {name: int(n) for name, n in re.findall(r"CALL_(\w+) = (\d+),", text)}
