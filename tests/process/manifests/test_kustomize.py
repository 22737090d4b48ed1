"""The files in kubernetes/ are what `make manifests` generates, and kubectl builds from them what the functions say."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gputax.kubernetes.objects import Manifest
from tests.builders.kustomizations import PLACES

ROOT = Path(__file__).resolve().parents[3] / "kubernetes"


def by_name(manifests: list[Manifest]) -> dict[tuple[str, str], Manifest]:
    return {(each["kind"], each["metadata"]["name"]): sorted_lists(each) for each in manifests}


def sorted_lists(manifest: Manifest) -> Manifest:
    """Order what Kubernetes tells apart by name and kustomize may write in any order."""
    spec: Any = manifest.get("spec", {}).get("template", {}).get("spec", {})
    for part, key in ((spec, "volumes"), *((each, "env") for each in spec.get("containers", ()))):
        part[key] = sorted(part.get(key, ()), key=lambda each: str(each["name"]))
    for container in spec.get("containers", ()):
        container["volumeMounts"] = sorted(container["volumeMounts"], key=lambda each: str(each["name"]))
    return manifest


@pytest.mark.parametrize("place", PLACES)
def test_what_kubectl_makes_of_an_overlay_is_what_the_functions_make(place: str) -> None:
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed; the generated files are compared without it")
    done = subprocess.run(["kubectl", "kustomize", str(ROOT / place)], capture_output=True, text=True, check=True)
    assert by_name(list(yaml.safe_load_all(done.stdout))) == by_name(PLACES[place]())
