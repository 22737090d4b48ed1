"""What xen-cri knows of its containers: one folder each, so that it outlives containerd and the runtime itself."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from xen_cri.errors import Refused


def ticks(pid: int, proc: Path = Path("/proc")) -> int:
    """Return when a process was started, in clock ticks, or 0 without one; its pid alone may be another's later."""
    try:
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


@dataclass(frozen=True)
class Known:
    """One container: which guest it is in and who carries it."""

    id: str
    kind: str
    bundle: str
    guest: str
    pid: int = 0
    started: int = 0  # the carrier's ticks
    released: bool = False  # `start` was called
    device: str = ""
    created: str = ""

    def lives(self) -> bool:
        """Whether its carrier is the process that was started."""
        return self.pid > 0 and self.started > 0 and ticks(self.pid) == self.started

    def status(self, lives: bool) -> str:
        """Return OCI's word for it."""
        if self.pid == 0:
            return "creating"
        if not lives:
            return "stopped"
        return "running" if self.released else "created"


class Store:
    """The containers of one namespace of containerd."""

    def __init__(self, namespace: str, folder: Path) -> None:
        self.namespace = namespace
        self.folder = folder / namespace

    def of(self, name: str) -> Path:
        """Return a container's folder."""
        return self.folder / name

    def read(self, name: str) -> Known:
        """Return what is known of a container."""
        try:
            return Known(**json.loads((self.of(name) / "state.json").read_text()))
        except FileNotFoundError as missing:
            message = f"container {name} does not exist"  # containerd looks for these words
            raise Refused(message) from missing

    def write(self, known: Known) -> None:
        """Keep it; a reader sees the old or the new text, never a part."""
        self.of(known.id).mkdir(parents=True, exist_ok=True)
        unfinished = self.of(known.id) / "state.new"
        unfinished.write_text(json.dumps(asdict(known)))
        unfinished.rename(self.of(known.id) / "state.json")

    def release(self, known: Known) -> Known:
        """Note that a container was started."""
        started = replace(known, released=True)
        self.write(started)
        return started

    def in_guest(self, guest: str) -> list[Known]:
        """Return all containers of a guest."""
        names = sorted(path.parent.name for path in self.folder.glob("*/state.json"))
        return [known for known in map(self.read, names) if known.guest == guest]

    def forget(self, name: str) -> None:
        """Remove a container's folder."""
        if not self.of(name).is_dir():
            return
        for path in self.of(name).iterdir():
            path.unlink()
        self.of(name).rmdir()
