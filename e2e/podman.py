"""A podman for this machine: a store of its own, runc, no systemd, no raised limits; and further runtimes by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def environment(directory: Path, runtimes: Mapping[str, Path] | None = None) -> dict[str, str]:
    """Write podman's configuration into the directory and return the variables with which podman takes it."""
    further = "".join(f'{name} = ["{path}"]\n' for name, path in (runtimes or {}).items())
    (directory / "containers.conf").write_text(
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]\n'
        '[engine]\ncgroup_manager = "cgroupfs"\nruntime = "runc"\nevents_logger = "none"\n'
        + (f"[engine.runtimes]\n{further}" if further else "")
    )
    store = f'graphroot = "{directory}/store"\nrunroot = "{directory}/run"\n'
    (directory / "storage.conf").write_text(f'[storage]\ndriver = "overlay"\n{store}')
    return {
        **os.environ,
        "CONTAINERS_CONF": str(directory / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(directory / "storage.conf"),
        "DOCKER_HOST": "unix:///nowhere",  # a docker that may be here is not the one that is asked
    }
