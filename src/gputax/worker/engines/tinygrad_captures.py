"""Captured runs kept on disk, and the proofs that they answered right: one file each, without the weights.

A capture is a pickle, and a pickle is code: it is read only from a directory that nobody else may write to, and only
if it has the checksum in its first line. A proof is read by the same rule, because a forged one would let a wrong
answer pass.
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
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gputax.worker.workloads.model_store import models_folder

FORMAT = "gputax capture 1"
FOLDER = "captures"
PRIVATE = 0o700
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Key(Protocol):
    """What a kept file depends on, as a name."""

    @property
    def name(self) -> str:
        """The name of its file."""
        ...


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
        return _digest(self) + ".capture"


@dataclass(frozen=True)
class ProofKey:
    """Everything that the answers of a capture depend on; if any of it is another, they are compared in full again."""

    capture: CaptureKey
    """Weights, batch size, architecture, versions."""
    capture_sha256: str
    """The kernels as PTX, and how they are launched."""
    library_sha256: str
    """The driver that this process calls."""
    backend_sha256: str
    """The driver behind a proxy; empty if there is none, or if its file cannot be seen from here."""
    device: str
    driver_version: str
    settings: tuple[tuple[str, str], ...]
    """Variables of the software device, such as one that lets it interpret."""
    samples_sha256: str

    @property
    def name(self) -> str:
        """The name of its file."""
        return _digest(self) + ".proof"


@dataclass(frozen=True)
class Proof:
    """The reference answers that a capture once met, and by whom they were given."""

    expected: dict[str, npt.NDArray[Any]]
    by: str
    """The reference and its version."""

    def payload(self) -> bytes:
        """Return it for the store."""
        file = io.BytesIO()
        arrays = {f"expected {name}": values for name, values in self.expected.items()}
        np.savez(file, allow_pickle=False, by=np.array(self.by), **arrays)
        return file.getvalue()

    @classmethod
    def of(cls, payload: bytes) -> Proof | None:
        """Return the proof, None if these bytes are not one."""
        try:
            with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:
                names = [name for name in arrays.files if name.startswith("expected ")]
                expected = {name.removeprefix("expected "): arrays[name] for name in names}
                return cls(expected, str(arrays["by"])) if expected else None
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None


class Captures:
    """The directory of captures and proofs; without one that is ours and writable, each start makes them again."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def read(self, key: Key) -> tuple[bytes | None, str]:
        """Return what is kept, or None and what is wrong with the file; no fault if there is none."""
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

    def write(self, key: Key, payload: bytes) -> bool:
        """Keep it, whole or not at all; a full disk only costs the next start its time."""
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


def _digest(key: CaptureKey | ProofKey) -> str:
    return hashlib.sha256(json.dumps(asdict(key), sort_keys=True).encode()).hexdigest()[:32]


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
