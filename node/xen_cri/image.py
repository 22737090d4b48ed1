"""Root file systems as read-only images, one for each content."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from pathlib import Path

from xen_cri.errors import Refused


def digest(root: Path) -> str:
    """Return a hash of everything in a tree that a container can see: names, modes, owners, links and bytes."""
    found = hashlib.sha256()
    for directory, directories, files in os.walk(root):
        directories.sort()
        for name in sorted([*directories, *files]):
            path = Path(directory) / name
            about = path.lstat()
            line = [str(path.relative_to(root)), about.st_mode, about.st_uid, about.st_gid, about.st_rdev]
            if stat.S_ISLNK(about.st_mode):
                line.append(str(path.readlink()))
            elif stat.S_ISREG(about.st_mode):
                with path.open("rb") as content:
                    line.append(hashlib.file_digest(content, "sha256").hexdigest())
            found.update(repr(line).encode())
    return found.hexdigest()


def prepare(root: Path, folder: Path) -> Path:
    """Return the image of a tree, making it once."""
    if not root.is_dir():
        message = f"the root file system {root} is not a folder"
        raise Refused(message)
    folder.mkdir(parents=True, exist_ok=True)
    image = folder / f"{digest(root)}.erofs"
    if image.exists():
        return image
    unfinished = folder / f"{image.stem}.{os.getpid()}.new"
    done = subprocess.run(["mkfs.erofs", str(unfinished), str(root)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        unfinished.unlink(missing_ok=True)
        message = f"mkfs.erofs: {done.stderr.strip()[-300:]}"
        raise Refused(message)
    unfinished.rename(image)
    return image
