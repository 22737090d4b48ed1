"""Bring a user's own model to a worker that cannot see its files: a container, another machine, a pod."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from gputax.errors import PreflightError
from gputax.plan.cells import Setup
from gputax.plan.own_model import OwnModel

PIECE_BYTES = 4 << 20
STALL_S = 120.0


class Answers(Protocol):
    """A connection to a worker."""

    def call(self, op: str, *, stall_timeout_s: float, **parameters: Any) -> dict[str, Any]:
        """Send one request and return its result."""
        ...


def delivered(connection: Answers, setup: Setup) -> Setup:
    """Return the setup with paths that exist where the worker runs; files are sent only if it cannot see them."""
    own = setup.own
    if not own.file:
        return setup
    files = dict(_files(own))
    asked = [{"path": str(path), "bytes": path.stat().st_size} for path in files]
    if not connection.call("file", files=asked, stall_timeout_s=STALL_S).get("missing"):
        return setup
    placed = {path: _sent(connection, path, name, own.sha256) for path, name in files.items()}
    file, inputs = (placed.get(Path(path), path) for path in (own.file, own.inputs))
    root = str(Path(file).parent) if own.factory and file != own.file else own.root
    return dataclasses.replace(setup, own=dataclasses.replace(own, file=file, inputs=inputs, root=root))


def _files(own: OwnModel) -> Iterator[tuple[Path, str]]:
    """Yield each file and its name beside the model: a graph names its weights relative to itself."""
    if own.factory:
        # A package is more than one file, and may have compiled parts: it must be installed there.
        if not own.in_package:
            yield Path(own.file), Path(own.file).name
    else:
        yield from _onnx_files(Path(own.file))
    if own.inputs:
        yield Path(own.inputs), f"inputs/{Path(own.inputs).name}"


def _onnx_files(path: Path) -> Iterator[tuple[Path, str]]:
    # Here: it imports onnx, which a built-in model does not need.
    from gputax.worker.workloads.onnx_header import files_of, read_onnx_header

    for file in files_of(path, read_onnx_header(path, "--model")):
        name = file.relative_to(path.parent)
        if ".." in name.parts:
            raise PreflightError(
                f"the model's data {name} is outside of its folder and cannot be sent", where=str(path)
            )
        yield file, str(name)


def _sent(connection: Answers, path: Path, name: str, digest: str) -> str:
    """Send one file piece by piece and return where it is now."""
    placed, offset = "", 0
    with path.open("rb") as file:
        while (data := file.read(PIECE_BYTES)) or not placed:
            piece = base64.b64encode(data).decode("ascii")
            answer = connection.call(
                "file", name=name, digest=digest, offset=offset, data=piece, stall_timeout_s=STALL_S
            )
            placed, offset = str(answer["path"]), offset + len(data)
    return placed
