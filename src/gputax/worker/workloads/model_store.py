"""The store of model files: its folder, its locks, and the manifest that each model must match."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from gputax.errors import PreflightError

Progress: TypeAlias = Callable[[int, int], None]
"""(bytes done, bytes in all; 0 if unknown)."""

ENVIRONMENT_VARIABLE = "GPUTAX_MODELS"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def models_folder() -> Path:
    """Return the folder of all models: $GPUTAX_MODELS, else the user's cache."""
    chosen = os.environ.get(ENVIRONMENT_VARIABLE, "")
    if chosen:
        return Path(chosen).expanduser().absolute()
    # The XDG specification says that a relative path must be ignored.
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (cache if cache.is_absolute() else Path.home() / ".cache") / "gputax" / "models"
    except RuntimeError as error:
        raise PreflightError(
            "no home directory to keep models in", next_step=f"set {ENVIRONMENT_VARIABLE} to a directory"
        ) from error


@contextmanager
def locked(model: Path, *, exclusive: bool) -> Iterator[float]:
    """Hold the model's lock (shared by readers) and yield the seconds waited for it."""
    descriptor = _open_lock(model.with_suffix(".lock"), create=exclusive)
    started = time.monotonic()
    try:
        if descriptor >= 0:
            _flock(descriptor, model.parent, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield time.monotonic() - started
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _open_lock(path: Path, *, create: bool) -> int:
    """Open the lock file; -1 if a reader finds none, as on a read-only mount."""
    if create:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise storage_error(error, path.parent) from error
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _flock(descriptor: int, folder: Path, kind: int) -> None:
    try:
        fcntl.flock(descriptor, kind)
    except OSError as error:
        raise PreflightError(
            f"this file system has no file locks ({error.strerror})",
            where=str(folder),
            next_step=f"set {ENVIRONMENT_VARIABLE} to a directory on a local disk",
        ) from error


def require_space(folder: Path, needed: int) -> None:
    """Fail early if the files cannot fit, instead of after a gigabyte."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise PreflightError(
            f"not enough disk space: {needed / 1e9:.2f} GB needed, {free / 1e9:.2f} GB free",
            where=str(folder),
            next_step=_other_folder(needed),
        )


def storage_error(error: OSError, folder: Path, needed: int = 0) -> PreflightError:
    """Return an OS error about a file as an error with a next step."""
    if error.errno in _FULL:
        what = f"the disk is full or a limit on file size was reached ({error.strerror})"
    else:
        what = f"cannot write models here ({error.strerror or error})"
    return PreflightError(what, where=str(folder), next_step=_other_folder(needed))


def _other_folder(needed: int) -> str:
    room = f" with {needed / 1e9:.1f} GB free" if needed else ""
    return f"set {ENVIRONMENT_VARIABLE} to a writable directory{room}"


_FORMAT = 1


@dataclass(frozen=True)
class PinnedFile:
    """One file, as written or fetched."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The description of one model; its first file is the ONNX graph."""

    workload: str
    precision: str
    source: str
    """`seeded` or `official`."""
    files: tuple[PinnedFile, ...]
    seed: int | None = None
    graph_version: str = ""
    parameters: int | None = None
    origin: str = ""
    """Origin of an official file."""
    format: int = _FORMAT


@dataclass(frozen=True)
class ModelFile:
    """A model on disk that matches its manifest."""

    workload: str
    precision: str
    source: str
    path: Path
    sha256: str
    """sha256 of the ONNX file, which contains the sha256 of seeded weights, so it identifies the whole model."""
    bytes: int
    parameters: int | None = None
    seed: int | None = None
    notes: tuple[str, ...] = ()
    """Actions to report to the user: built, rebuilt and why, waited for, fetched."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data for `--json` and results."""
        return {**asdict(self), "path": str(self.path), "notes": list(self.notes)}


def manifest_path(model: Path) -> Path:
    """Return the path of the manifest of an ONNX file."""
    return model.with_suffix(".manifest.json")


def model_path(manifest: Path) -> Path:
    """Return the ONNX file that a manifest describes."""
    return manifest.with_name(manifest.name.removesuffix(".manifest.json") + ".onnx")


def read_manifest(path: Path) -> Manifest | None:
    """Return the manifest, or None if it is missing or unreadable."""
    try:
        data = json.loads(path.read_text())
        files = tuple(PinnedFile(**file) for file in data.pop("files"))
        manifest = Manifest(files=files, **data)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return manifest if manifest.format == _FORMAT and manifest.files else None


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write the manifest atomically."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(asdict(manifest), indent=2) + "\n")
    partial.replace(path)


def damage(manifest: Manifest, folder: Path, *, hashes: bool = True) -> str:
    """Return what is wrong with the model's files, or nothing; without hashes only sizes are checked."""
    for pinned in manifest.files:
        path = folder / pinned.name
        try:
            size = path.stat().st_size
            if size != pinned.bytes:
                return f"{pinned.name} has {size} bytes instead of {pinned.bytes}"
            if hashes and (found := file_sha256(path)) != pinned.sha256:
                return f"{pinned.name} has sha256 {found[:12]}… instead of {pinned.sha256[:12]}…"
        except OSError as error:
            return f"{pinned.name} cannot be read ({error.strerror})"
    return ""


def described(manifest: Manifest, model: Path, notes: tuple[str, ...] = ()) -> ModelFile:
    """Return the model file that the manifest describes."""
    return ModelFile(
        manifest.workload,
        manifest.precision,
        manifest.source,
        model,
        manifest.files[0].sha256,
        sum(file.bytes for file in manifest.files),
        manifest.parameters,
        manifest.seed,
        notes,
    )


def file_sha256(path: Path) -> str:
    """Return the file's sha256, read in chunks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
