"""The store of seeded models: built once, checked by sha256 at every use, rebuilt with a note when damaged."""

from __future__ import annotations

from pathlib import Path

from gputax.worker.workloads.model_store import (
    Manifest,
    ModelFile,
    PinnedFile,
    Progress,
    damage,
    described,
    locked,
    manifest_path,
    models_folder,
    read_manifest,
    require_space,
    storage_error,
    write_manifest,
)
from gputax.worker.workloads.workload import Workload, parameter_values

DEFAULT_SEED = 7
# Space for the graph and the manifest next to the weights; BERT-Large's graph has 0.2 MB.
_GRAPH_ROOM = 1_000_000


def seeded_path(workload: str, precision: str, seed: int) -> Path:
    """Return the path of the seeded model, whether it exists or not."""
    return models_folder() / workload.replace(":", "-") / f"{precision}-seed{seed}.onnx"


def ensure(
    workload: Workload,
    precision: str = "fp32",
    seed: int = DEFAULT_SEED,
    progress: Progress | None = None,
) -> ModelFile:
    """Return the seeded model, verified; build it if it is missing or damaged, and add a note."""
    path = seeded_path(workload.name, precision, seed)
    with locked(path, exclusive=False):
        manifest, fault = _checked(workload, path)
        if manifest and not fault:
            return described(manifest, path)
    with locked(path, exclusive=True) as waited_s:
        # Another process may have built it in the meantime.
        manifest, fault = _checked(workload, path)
        if manifest and not fault:
            note = f"{workload.name} {precision}: built by another process, waited {waited_s:.1f} s for it"
            return described(manifest, path, (note,))
        return _write(workload, precision, seed, progress, f"{workload.name} {precision}: {fault}")


def build(
    workload: Workload,
    precision: str = "fp32",
    seed: int = DEFAULT_SEED,
    progress: Progress | None = None,
) -> ModelFile:
    """Write the seeded model again, even if it exists."""
    with locked(seeded_path(workload.name, precision, seed), exclusive=True):
        return _write(workload, precision, seed, progress, "")


def _checked(workload: Workload, path: Path) -> tuple[Manifest | None, str]:
    """Return the manifest and what is wrong with it or its files."""
    manifest = read_manifest(manifest_path(path))
    if manifest is None:
        found = path.exists() or manifest_path(path).exists()
        return None, "the manifest is missing or damaged" if found else "not built yet"
    if manifest.graph_version != workload.graph_version:
        return manifest, f"graph version {manifest.graph_version} is not {workload.graph_version}"
    return manifest, damage(manifest, path.parent)


def _write(workload: Workload, precision: str, seed: int, progress: Progress | None, reason: str) -> ModelFile:
    # Here, because it imports onnx (121 ms), which a worker with a verified model does not need.
    from gputax.worker.workloads.onnx_file import weights_bytes, write_graph, write_weights

    path = seeded_path(workload.name, precision, seed)
    weights_path = path.with_suffix(".weights")
    # The lock is ours, so these names are too: leftovers of a killed process are overwritten.
    partial, weights_partial = (file.with_name(file.name + ".partial") for file in (path, weights_path))
    needed = weights_bytes(workload, precision) + _GRAPH_ROOM
    try:
        require_space(path.parent, needed)
        weights = write_weights(
            workload,
            precision,
            lambda parameter: parameter_values(parameter, seed),
            weights_partial,
            progress,
        )
        graph = write_graph(workload, precision, partial, weights_path.name, weights)
        # No fsync: the sha256 is checked at every use, and a gigabyte would wait for the disk.
        weights_partial.replace(weights_path)
        partial.replace(path)
        manifest = Manifest(
            workload.name,
            precision,
            "seeded",
            (
                PinnedFile(path.name, graph.bytes, graph.sha256),
                PinnedFile(weights_path.name, weights.bytes, weights.sha256),
            ),
            seed,
            workload.graph_version,
            workload.parameter_count,
        )
        write_manifest(manifest_path(path), manifest)
    except OSError as error:
        raise storage_error(error, path.parent, needed) from error
    finally:
        weights_partial.unlink(missing_ok=True)
        partial.unlink(missing_ok=True)
    return described(manifest, path, (f"{reason}; built with seed {seed}",) if reason else ())
