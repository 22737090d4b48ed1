"""The files in kubernetes/ say the same as the functions that make a run's pods: neither can change alone."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gputax.kubernetes import manifests as kustomize
from gputax.kubernetes.objects import Manifest
from gputax.sharing.kubernetes.permissions import access_sharing

ROOT = Path(__file__).resolve().parents[2] / "kubernetes"
PLACES: dict[str, Callable[[], list[Manifest]]] = {
    "access": kustomize.access,
    "access-sharing": access_sharing,
    "base": kustomize.base,
    "overlays/baseline": kustomize.baseline,
    "overlays/gpu-proxy": kustomize.gpu_proxy,
    "overlays/xen": kustomize.xen,
}


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


def files(directory: Path) -> list[Manifest]:
    return [
        document
        for path in sorted(directory.glob("*.yaml"))
        if path.name != "kustomization.yaml"
        for document in yaml.safe_load_all(path.read_text())
    ]


def test_the_base_s_files_are_what_the_functions_make() -> None:
    assert by_name([*files(ROOT / "access"), *files(ROOT / "base")]) == by_name(kustomize.base())


@pytest.mark.parametrize("place", PLACES)
def test_what_kubectl_makes_of_an_overlay_is_what_the_functions_make(place: str) -> None:
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not here; the base is compared without it")
    done = subprocess.run(["kubectl", "kustomize", str(ROOT / place)], capture_output=True, text=True, check=True)
    assert by_name(list(yaml.safe_load_all(done.stdout))) == by_name(PLACES[place]())


@pytest.mark.parametrize("place", PLACES)
def test_every_file_of_a_kustomization_is_named_in_it(place: str) -> None:
    named = yaml.safe_load((ROOT / place / "kustomization.yaml").read_text())
    used = {*named["resources"], *(each["path"] for each in named.get("patches", ()))}
    assert {path.name for path in (ROOT / place).glob("*.yaml")} - {"kustomization.yaml"} == {
        name for name in used if name.endswith(".yaml")
    }


def test_the_xen_class_is_the_one_that_users_wrote_down() -> None:
    (found,) = [each for each in files(ROOT / "overlays/xen") if each["kind"] == "RuntimeClass"]
    assert found["metadata"]["name"] == "xen-gpu"
    assert found["handler"] == "xen-cri"
    assert found["overhead"]["podFixed"] == {"memory": "256Mi", "cpu": "100m"}
    assert found["scheduling"]["nodeSelector"] == {"xen-enabled": "true"}
