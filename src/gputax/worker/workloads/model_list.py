"""The models in the store, and those that could be there."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gputax.plan.cells import PRECISIONS
from gputax.plan.workloads import WORKLOADS
from gputax.worker.workloads import load_workload
from gputax.worker.workloads.fetch import OFFICIAL, official_path
from gputax.worker.workloads.model_store import (
    Manifest,
    damage,
    manifest_path,
    model_path,
    models_folder,
    read_manifest,
)
from gputax.worker.workloads.weights import DEFAULT_SEED, seeded_path


@dataclass(frozen=True)
class ListedModel:
    """One model of the store, or one that could be there."""

    name: str
    precision: str
    source: str
    state: str
    """`verified` (sha256), `present` (sizes only), `damaged`, `outdated` (another graph), `missing`."""
    bytes: int
    sha256: str
    path: Path
    seed: int | None = None
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data for `--json`."""
        return {**asdict(self), "path": str(self.path)}


def list_models(*, verify: bool = False) -> tuple[ListedModel, ...]:
    """Return every model found and every default one that is missing; `verify` reads each file completely."""
    return tuple(model for name in WORKLOADS for model in _of_workload(name, verify))


def _of_workload(name: str, verify: bool) -> list[ListedModel]:
    expected = {seeded_path(name, precision, DEFAULT_SEED): (precision, "seeded") for precision in PRECISIONS}
    if name in OFFICIAL:
        expected[official_path(OFFICIAL[name])] = ("fp32", "official")
    found = {model_path(file) for file in sorted((models_folder() / name).glob("*.manifest.json"))}
    listed = []
    for path in [*expected, *sorted(found - set(expected))]:
        manifest = read_manifest(manifest_path(path))
        precision, source = expected.get(path, ("", ""))
        if manifest is not None:
            listed.append(_found(manifest, path, verify))
        elif manifest_path(path).exists() or path.exists():
            problem = "no readable manifest"
            listed.append(ListedModel(name, precision, source, "damaged", 0, "", path, None, problem))
        else:
            seed = DEFAULT_SEED if source == "seeded" else None
            listed.append(ListedModel(name, precision, source, "missing", 0, "", path, seed))
    return listed


def _found(manifest: Manifest, path: Path, verify: bool) -> ListedModel:
    problem = damage(manifest, path.parent, hashes=verify)
    if problem:
        state = "damaged"
    elif manifest.source == "seeded" and manifest.graph_version != load_workload(manifest.workload).graph_version:
        state, problem = "outdated", "written by another version of gputax"
    else:
        state = "verified" if verify else "present"
    return ListedModel(
        manifest.workload,
        manifest.precision,
        manifest.source,
        state,
        sum(file.bytes for file in manifest.files),
        manifest.files[0].sha256,
        path,
        manifest.seed,
        problem,
    )
