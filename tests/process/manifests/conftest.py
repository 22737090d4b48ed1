"""A copy of what the make targets need, with stand-ins for the tools that reach a cluster or the network."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.process.manifests.built import REPOSITORY
from tests.process.manifests.site import STAND_IN, SYSTEM, Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    shutil.copy(REPOSITORY / "Makefile", tmp_path)
    shutil.copytree(REPOSITORY / "kubernetes", tmp_path / "kubernetes")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in SYSTEM:
        found = shutil.which(name)
        assert found, name
        (tools / name).symlink_to(found)
    for name in ("kubectl", "helm", "curl", "tar"):
        (tools / name).write_text(STAND_IN)
        (tools / name).chmod(0o755)
    return Site(tmp_path)
