"""One boot of Xen in an emulator with a scenario in dom0, and what it printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from e2e.xen import base, machine
from e2e.xen.archive import Entry
from e2e.xen.base import Base
from e2e.xen.machine import Transcript

BUILD = Path(__file__).parents[2] / "native/build"
Files = Callable[[Base, Path, Path], Iterable[Entry]]


def booted(folder: Path, scenario: str, files: Files, timeout_s: float, *, pods: bool = False) -> Transcript:
    """Return the transcript; dom0 must have powered off in time, which is minutes on idle cores."""
    made = base.prepare()
    seen = machine.boot(made, BUILD, scenario, list(files(made, BUILD, folder)), folder, timeout_s, pods=pods)
    print(seen.text[-20000:])
    assert seen.ended, "dom0 did not power off in time"
    return seen
