"""Which ONNX file an engine loads, and how the workload's samples are converted to its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from gputax.errors import PreflightError
from gputax.plan.notices import Notice
from gputax.worker.engines.engine import EngineRequest
from gputax.worker.workloads import load_workload
from gputax.worker.workloads.manifest import ModelFile
from gputax.worker.workloads.user_model import InputBinding, describe_user_model, user_model_sha256
from gputax.worker.workloads.workload import Workload

OFFICIAL = "official"


@dataclass(frozen=True)
class OnnxModel:
    """A file that matches the workload."""

    path: str
    sha256: str
    source: str
    """`seeded`, `official`, or `file` for the user's own."""
    precision: str
    inputs: tuple[InputBinding, ...]
    fixed_batch: int | None
    notices: tuple[Notice, ...]

    def adapt(self, samples: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Return the samples under the file's names, in its layout and type; done once, untimed."""
        return {binding.name: _adapted(samples[binding.source], binding) for binding in self.inputs}


def resolve_model(request: EngineRequest) -> OnnxModel:
    """Find, build or check the requested file."""
    workload = load_workload(request.workload)
    if request.weights == OFFICIAL:
        model = _fetched(request.workload)
        return _bound(workload, model.path, model.sha256, OFFICIAL, _build_notices(model))
    if request.weights:
        path = Path(request.weights)
        return _bound(workload, path, "", "file", ())
    from gputax.worker.workloads.weights import ensure

    model = ensure(workload, request.precision, request.seed)
    inputs = tuple(
        InputBinding(spec.name, spec.name, spec.dtype_in(request.precision), "NCHW" if len(spec.shape) == 3 else "")
        for spec in workload.inputs
    )
    return OnnxModel(str(model.path), model.sha256, "seeded", request.precision, inputs, None, _build_notices(model))


def _fetched(workload: str) -> ModelFile:
    """Return the official file that was fetched before; a measurement never downloads."""
    from gputax.worker.workloads.fetch import OFFICIAL as OFFICIAL_FILES
    from gputax.worker.workloads.fetch import fetch, fetch_file

    if workload not in OFFICIAL_FILES:
        return fetch(workload)  # raises: there is none

    def refuse(url: str) -> NoReturn:
        raise PreflightError(
            f"the official file of {workload} has not been fetched", next_step=f"run gputax models fetch {workload}"
        )

    return fetch_file(OFFICIAL_FILES[workload], refuse)


def _bound(workload: Workload, path: Path, sha256: str, source: str, notices: tuple[Notice, ...]) -> OnnxModel:
    described = describe_user_model(path, workload)
    types = [each.dtype for each in described.inputs] + [each.dtype for each in described.outputs]
    return OnnxModel(
        path=str(path),
        sha256=sha256 or user_model_sha256(described),
        source=source,
        precision="fp16" if "float16" in types else "fp32",
        inputs=described.inputs,
        fixed_batch=described.fixed_batch,
        notices=(*notices, *(Notice("weights", note) for note in described.notes)),
    )


def _build_notices(model: ModelFile) -> tuple[Notice, ...]:
    return tuple(Notice("weights", note) for note in model.notes)


def _adapted(values: npt.NDArray[Any], binding: InputBinding) -> npt.NDArray[Any]:
    if binding.layout == "NHWC":
        values = values.transpose(0, 2, 3, 1)
    try:
        return np.ascontiguousarray(values, dtype=binding.dtype)
    except TypeError as error:
        raise PreflightError(f"samples cannot be converted to {binding.dtype}", where=binding.name) from error
