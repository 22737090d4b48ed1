"""Captured runs kept on disk: one file per model, batch size, architecture and version, without the weights.

A capture is a pickle, and a pickle is code: it is read only from a directory that nobody else may write to, and only
if it has the checksum in its first line.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pickle
import stat
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gputax.worker.workloads.model_store import models_folder

FORMAT = "gputax capture 1"
FOLDER = "captures"
PRIVATE = 0o700
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class CaptureKey:
    """Everything that a capture depends on."""

    model_sha256: str
    batch: int
    arch: str
    renderer: str
    tinygrad: str
    graphs: bool
    inputs: tuple[tuple[str, str, tuple[int, ...]], ...]
    python: str = f"{sys.version_info.major}.{sys.version_info.minor}"

    @property
    def name(self) -> str:
        """The name of its file."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:32] + ".capture"


class Captures:
    """The directory of captures; without one that is ours and writable, each start captures again."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def read(self, key: CaptureKey) -> tuple[bytes | None, str]:
        """Return the pickle, or None and what is wrong with the file; no fault if there is none."""
        if self.folder is None:
            return None, ""
        path = self.folder / key.name
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None, ""
        except OSError as error:
            return None, f"{path} cannot be read ({error.strerror})"
        with os.fdopen(descriptor, "rb") as file:
            if fault := _foreign(os.fstat(file.fileno())):
                return None, f"{path} {fault}"
            head, _, payload = file.read().partition(b"\n")
        if head.decode(errors="replace") != _head(payload):
            return None, f"{path} is damaged: its checksum differs"
        return payload, ""

    def write(self, key: CaptureKey, payload: bytes) -> bool:
        """Keep the pickle, whole or not at all; a full disk only costs the next start its time."""
        if self.folder is None:
            return False
        partial = self.folder / f"{key.name}.{os.getpid()}.partial"
        try:
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(_head(payload).encode() + b"\n" + payload)
            partial.replace(self.folder / key.name)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink()
            return False
        return True


def own_captures() -> Captures:
    """Return the captures beside the models, or in the user's cache if the models are someone else's (an image's)."""
    for parent in (models_folder(), Path.home() / ".cache" / "gputax"):
        folder = parent / FOLDER
        try:
            folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            if not _foreign(folder.lstat()) and stat.S_ISDIR(folder.lstat().st_mode) and os.access(folder, os.W_OK):
                return Captures(folder)
        except OSError:
            continue
    return Captures(None)


def _head(payload: bytes) -> str:
    return f"{FORMAT} {hashlib.sha256(payload).hexdigest()}"


def _foreign(status: os.stat_result) -> str:
    """Return why someone else may have written it, or nothing."""
    if status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}"
    if status.st_mode & OTHERS_MAY_WRITE:
        return f"may be written by others (mode {stat.S_IMODE(status.st_mode):o})"
    return ""


def packed(jit: Any, weights: Mapping[str, Any]) -> bytes:
    """Pickle a captured run; the buffers of weights are replaced by their names."""
    names = {id(buffer): name for name, buffer in weights.items()}
    file = io.BytesIO()
    pickler = _Pickler(file, protocol=5)
    pickler.names = names
    pickler.dump(jit)
    return file.getvalue()


def unpacked(payload: bytes, weights: Mapping[str, Any]) -> Any:
    """Rebuild a captured run on the buffers of weights that are on the device already."""
    unpickler = _Unpickler(io.BytesIO(payload))
    unpickler.weights = weights
    return unpickler.load()


class _Pickler(pickle.Pickler):
    names: Mapping[int, str]

    def persistent_id(self, obj: Any) -> str | None:
        return self.names.get(id(obj))


class _Unpickler(pickle.Unpickler):
    weights: Mapping[str, Any]

    def persistent_load(self, pid: str) -> Any:
        return self.weights[pid].ref(1)  # tinygrad counts the graphs that hold a buffer
