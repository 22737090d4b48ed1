"""What kubectl makes of a kustomization of ours."""

from __future__ import annotations

import copy
import functools
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightkube import codecs

REPOSITORY = Path(__file__).resolve().parents[3]
KUBERNETES = REPOSITORY / "kubernetes"
OVERLAYS = tuple(sorted(path.name for path in (KUBERNETES / "sharing/overlays").iterdir()))
Manifest = dict[str, Any]


def built(place: str) -> list[Manifest]:
    """Return the objects of `kubernetes/PLACE`; the caller may change them."""
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not here to build kustomizations")
    return copy.deepcopy(_kept(KUBERNETES / place))


def built_from(directory: Path) -> list[Manifest]:
    """Return the objects of a kustomization anywhere."""
    done = subprocess.run(["kubectl", "kustomize", str(directory)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def read_back(manifest: Manifest) -> Manifest:
    """Return what the Kubernetes client keeps of an object: a field that it does not know is lost."""
    kept: Any = codecs.from_dict(manifest)
    return dict(kept.to_dict())


def one(manifests: list[Manifest], kind: str) -> Manifest:
    """Return the only object of a kind."""
    (found,) = [each for each in manifests if each["kind"] == kind]
    return found


@functools.cache
def _kept(directory: Path) -> list[Manifest]:
    return built_from(directory)
