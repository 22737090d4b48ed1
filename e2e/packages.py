"""The Debian packages of the end-to-end lane: what is missing, and the command that brings it."""

from __future__ import annotations

import shutil
from pathlib import Path

PACKAGES = {  # package: what must be there
    "etcd-server": "etcd",
    "runc": "runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "iproute2": "ip",
    "openssl": "openssl",
    "gcc": "gcc",
    "prometheus": "prometheus",
    "podman": "podman",
    "openssh-server": "sshd",
    "openssh-client": "ssh",
}


def missing_packages() -> list[str]:
    """Return the packages whose program is not there."""
    return [package for package, program in PACKAGES.items() if _find(program) is None]


def install_command(packages: list[str]) -> str:
    """Return the command that installs them."""
    return f"apt-get install -y --no-install-recommends {' '.join(packages)}"


def program(name: str) -> str:
    """Return a program's absolute path; sbin counts too."""
    found = _find(name)
    if found is None:
        raise FileNotFoundError(name)
    return found


def _find(name: str) -> str | None:
    if name.startswith("/"):
        return name if Path(name).exists() else None
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
