"""Files of the user's that this worker cannot see: written here as they arrive through the pipe."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Any

from gputax.errors import PreflightError, WorkerError
from gputax.worker.scratch import scratch

FOLDER = "received"


def answer_file(request: dict[str, Any]) -> dict[str, Any]:
    """Answer `file`: whether files are here with their sizes, or one more piece of one."""
    try:
        if "files" in request:
            return {"missing": [each["path"] for each in request["files"] if not _is_here(each)]}
        return {"path": str(_append(request))}
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise WorkerError(f"malformed request: {error!r}", where="file") from error
    except OSError as error:
        raise PreflightError(
            f"a file of yours cannot be stored here: {error.strerror}",
            where=str(_folder()),
            next_step="give the worker's /tmp more space or memory (--memory), or put the file into the image",
        ) from error


def _is_here(file: dict[str, Any]) -> bool:
    try:
        return Path(file["path"]).stat().st_size == int(file["bytes"])
    except OSError:
        return False


def _append(request: dict[str, Any]) -> Path:
    name = Path(str(request["name"]))
    if name.is_absolute() or ".." in name.parts:
        raise ValueError(f"the name {str(name)!r} leads out of the folder")
    path = _folder() / str(request["digest"])[:64] / name
    path.parent.mkdir(parents=True, exist_ok=True)
    offset, data = int(request["offset"]), base64.b64decode(request["data"], validate=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if not offset else 0), 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.seek(offset)
        file.write(data)
    return path


def _folder() -> Path:
    return scratch() / FOLDER
