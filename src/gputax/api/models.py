"""A model of the user's own: find its file, so that a plan can name it by its content."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from gputax.errors import PreflightError
from gputax.plan.cells import StrPath, absolute
from gputax.plan.own_model import OwnModel, is_factory


def own_model(
    file: StrPath, *, shapes: Sequence[str] = (), ranges: Sequence[str] = (), inputs: StrPath = ""
) -> OwnModel:
    """Return your own model for `load_plan`, `duet` and `share_plan`, or raise with what is missing.

    `file` is an ONNX file, or `PACKAGE.MODULE:FACTORY` of a torch module, which only the worker imports.
    `shapes` such as `ids=1x384` give axes that the file leaves free, `ranges` such as `ids=0..30521` the values that
    are drawn; `inputs` is an .npz file with the values themselves.
    """
    from gputax.worker.workloads.model_store import file_sha256
    from gputax.worker.workloads.own_model import own_network

    asked = dataclasses.replace(_named(str(file)), shapes=tuple(shapes), ranges=tuple(ranges), inputs=absolute(inputs))
    if asked.inputs:
        try:
            asked = dataclasses.replace(asked, inputs_sha256=file_sha256(Path(asked.inputs)))
        except OSError as error:
            raise PreflightError(
                f"cannot read the inputs ({error.strerror})", where=asked.inputs, next_step="check --inputs"
            ) from error
    network = own_network(asked)
    return dataclasses.replace(asked, sha256=network.sha256, single=network.fixed_batch == 1)


def _named(model: str) -> OwnModel:
    """Return the file, or the factory with the file that defines it; the working folder is searched first."""
    if not is_factory(model) or Path(model).exists():
        return OwnModel(absolute(model))
    from gputax.worker.workloads.own_module import find_source

    source = find_source(model, str(Path.cwd()))
    return OwnModel(str(source.path), factory=model, root=source.root)
