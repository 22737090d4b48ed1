"""Get the official MLPerf files: downloaded or placed by hand, checked by md5, then pinned by sha256."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputax.errors import PreflightError, UsageError
from gputax.plan.workloads import workload_facts
from gputax.worker.workloads.model_store import (
    Manifest,
    ModelFile,
    PinnedFile,
    Progress,
    damage,
    described,
    file_sha256,
    locked,
    manifest_path,
    models_folder,
    read_manifest,
    require_space,
    storage_error,
    write_manifest,
)

_TIMEOUT_S = 30.0
_CHUNK = 1 << 20

Opener = Callable[[str], AbstractContextManager[Any]]


@dataclass(frozen=True)
class OfficialFile:
    """A file that MLCommons publishes with an md5; we check that once and pin our own sha256."""

    workload: str
    name: str
    url: str
    md5: str
    size: str
    """Approximate size for display; no exact size is published."""


# Two files on Zenodo are named resnet50_v1.onnx (opset 11 here, opset 8 in record 2592612): the md5 decides.
OFFICIAL: dict[str, OfficialFile] = {
    "resnet50": OfficialFile(
        "resnet50",
        "resnet50_v1.onnx",
        "https://zenodo.org/records/4735647/files/resnet50_v1.onnx",
        "f6a4da60cd5f084d97efc2c1ddb10beb",
        "about 102 MB",
    ),
    "bert-large": OfficialFile(
        "bert-large",
        "model.onnx",
        "https://zenodo.org/records/3733910/files/model.onnx",
        "819b25b19cd8e59080c10892689750ca",
        "about 1.34 GB",
    ),
}


def official_path(official: OfficialFile) -> Path:
    """Return the path of the file, whether it exists or not."""
    return models_folder() / official.workload / official.name


def fetch(workload: str, progress: Progress | None = None) -> ModelFile:
    """Return the workload's official file; a file already at its path is checked and used."""
    workload_facts(workload)
    if workload not in OFFICIAL:
        raise UsageError(
            f"{workload} has no official MLPerf file: it is not an MLPerf model",
            next_step=f"use seeded weights (gputax models build {workload}) or your own (--weights FILE)",
        )
    return fetch_file(OFFICIAL[workload], _open_url, progress)


def fetch_file(official: OfficialFile, opener: Opener, progress: Progress | None = None) -> ModelFile:
    """Return the file: already pinned, placed by hand, or downloaded with `opener`."""
    path = official_path(official)
    with locked(path, exclusive=True):
        manifest = read_manifest(manifest_path(path))
        notes: tuple[str, ...] = ()
        if manifest is not None and path.exists():
            fault = damage(manifest, path.parent)
            if not fault:
                return described(manifest, path, (f"{official.name} was already there, sha256 as pinned",))
            notes = (f"{fault}; fetched again",)
        elif path.exists():
            _require_md5(official, path, _file_md5(path))
            return _pinned(official, path, (f"{official.name} was found at its path, md5 as published",))
        _download(official, path, opener, progress)
        return _pinned(official, path, (*notes, f"fetched {official.url}, md5 as published"))


def _pinned(official: OfficialFile, path: Path, notes: tuple[str, ...]) -> ModelFile:
    pinned = PinnedFile(path.name, path.stat().st_size, file_sha256(path))
    manifest = Manifest(official.workload, "fp32", "official", (pinned,), origin=official.url)
    try:
        write_manifest(manifest_path(path), manifest)
    except OSError as error:
        raise storage_error(error, path.parent) from error
    return described(manifest, path, notes)


def _download(official: OfficialFile, path: Path, opener: Opener, progress: Progress | None) -> None:
    partial = path.with_name(path.name + ".partial")
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with _connected(official, path, opener) as response, partial.open("wb") as file:
            total, done = int(response.headers.get("Content-Length") or 0), 0
            require_space(path.parent, total)
            while chunk := _next_chunk(official, path, response):
                file.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                if progress:
                    progress(done, total)
        if done < total:
            raise _by_hand(official, path, f"the connection closed after {done} of {total} bytes")
        _require_md5(official, path, digest.hexdigest())
        partial.replace(path)
    except OSError as error:
        raise storage_error(error, path.parent) from error
    finally:
        partial.unlink(missing_ok=True)


def _connected(official: OfficialFile, path: Path, opener: Opener) -> AbstractContextManager[Any]:
    try:
        return opener(official.url)
    except (OSError, ValueError) as error:
        # urllib's errors are OSErrors; it raises ValueError for an invalid proxy variable.
        raise _by_hand(official, path, str(error)) from error


def _next_chunk(official: OfficialFile, path: Path, response: Any) -> bytes:
    from http.client import HTTPException

    try:
        chunk: bytes = response.read(_CHUNK)
    except (OSError, HTTPException) as error:
        raise _by_hand(official, path, str(error) or type(error).__name__) from error
    return chunk


def _by_hand(official: OfficialFile, path: Path, why: str) -> PreflightError:
    return PreflightError(
        f"cannot fetch {official.name} ({official.size}, md5 {official.md5}): {why}",
        where=official.url,
        next_step=(
            f"download {official.url} elsewhere, put it at {path}, then run: gputax models fetch {official.workload}"
        ),
    )


def _require_md5(official: OfficialFile, path: Path, found: str) -> None:
    if found != official.md5:
        raise PreflightError(
            f"{official.name} has md5 {found}, expected {official.md5}",
            where=str(path),
            next_step=(
                f"remove {path} if it exists and run: gputax models fetch {official.workload}; "
                "use your own file with --weights FILE"
            ),
        )


def _file_md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _open_url(url: str) -> AbstractContextManager[Any]:
    # Here, because urllib.request takes time to import (87 ms here) and `models list` reads only the table above.
    from urllib.request import urlopen

    response: AbstractContextManager[Any] = urlopen(url, timeout=_TIMEOUT_S)
    return response
