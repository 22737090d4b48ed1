"""Probe the isolation between tenants from inside one: each probe is one request and only reports what happened.

Nothing is judged here. A probe is `fill` (allocate until refused), `hold` (keep a secret in the device's memory),
`check` (is the secret still there, as a control), `read` (look for another tenant's secret) or `drop`.
"""

from __future__ import annotations

from typing import Any, Protocol

from gputax.errors import WorkerError

SECRET_REPEATS = 4096


class Walls(Protocol):
    """The memory of one kind of device, as a tenant can reach it."""

    def fill(self, most_bytes: int) -> dict[str, Any]:
        """Allocate until refused or until this much is held; return the amount and the refusal."""
        ...

    def hold(self, secret: bytes) -> dict[str, Any]:
        """Keep a secret and return its location."""
        ...

    def check(self, secret: bytes) -> dict[str, Any]:
        """Return whether the owner can still read its secret."""
        ...

    def read(self, secret: bytes, place: dict[str, Any]) -> dict[str, Any]:
        """Try every way to read another tenant's secret at that location; return each attempt."""
        ...

    def drop(self) -> None:
        """Release everything that is held."""
        ...


_walls: dict[str, Walls] = {}
"""State of this process between two requests, by kind of device."""


def probe(request: dict[str, Any]) -> dict[str, Any]:
    """Answer one `describe about=isolation`."""
    family, what = str(request.get("family", "cpu")), str(request.get("probe"))
    secret = bytes.fromhex(str(request.get("secret", "")))
    if family not in _walls:
        _walls[family] = _opened(family)
    walls = _walls[family]
    match what:
        case "fill":
            return walls.fill(int(request.get("most_bytes", 0)))
        case "hold":
            return walls.hold(secret)
        case "check":
            return walls.check(secret)
        case "read":
            return walls.read(secret, dict(request.get("place") or {}))
        case "drop":
            walls.drop()
            return {}
    raise WorkerError(f"unknown isolation probe {what!r}", where="worker protocol")


def _opened(family: str) -> Walls:
    if family == "driver":
        from gputax.worker.isolation.driver import DriverWalls

        return DriverWalls()
    from gputax.worker.isolation.host import HostWalls

    return HostWalls()


def attempt(way: str, outcome: str, *, found: bool) -> dict[str, Any]:
    """Return one attempt to read foreign memory: the way, the outcome, and whether the secret was found."""
    return {"way": way, "outcome": outcome, "found": found}
