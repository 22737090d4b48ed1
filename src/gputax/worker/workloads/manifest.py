"""The manifest of each model: its files, with the size and sha256 that each must have."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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
