"""A model of the user's own: read its file, so that a plan can name it by its content."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from gputax.errors import PreflightError
from gputax.plan.cells import StrPath, absolute
from gputax.plan.own_model import OwnModel


def own_model(
    file: StrPath, *, shapes: Sequence[str] = (), ranges: Sequence[str] = (), inputs: StrPath = ""
) -> OwnModel:
    """Return your own ONNX model for `load_plan`, `duet` and `share_plan`, or raise with what is missing.

    `shapes` such as `ids=1x384` give axes that the file leaves free, `ranges` such as `ids=0..30521` the values that
    are drawn; `inputs` is an .npz file with the values themselves.
    """
    from gputax.worker.workloads.model_store import file_sha256
    from gputax.worker.workloads.own_model import own_network

    asked = OwnModel(absolute(file), shapes=tuple(shapes), ranges=tuple(ranges), inputs=absolute(inputs))
    if asked.inputs:
        try:
            asked = dataclasses.replace(asked, inputs_sha256=file_sha256(Path(asked.inputs)))
        except OSError as error:
            raise PreflightError(
                f"cannot read the inputs ({error.strerror})", where=asked.inputs, next_step="check --inputs"
            ) from error
    network = own_network(asked)
    return dataclasses.replace(asked, sha256=network.sha256, single=network.fixed_batch == 1)
