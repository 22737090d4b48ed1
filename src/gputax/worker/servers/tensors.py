"""The inputs of the Open Inference protocol: shapes from a model's metadata, values drawn from a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax.errors import PreflightError, UsageError

TYPES: dict[str, str] = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "i1", "INT16": "<i2",
    "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
MOST_VALUES = 50_000_000
# Indices and labels are small; a table of any useful size has so many rows.
INTEGERS_BELOW = 8


@dataclass(frozen=True)
class TensorSpec:
    """One input as the server describes it; -1 is an axis that it leaves free."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Tensor:
    """One input with its values."""

    name: str
    datatype: str
    values: npt.NDArray[Any]


def specs_of(metadata: Any, where: str) -> list[TensorSpec]:
    """Return the inputs in a model's metadata."""
    try:
        return [
            TensorSpec(str(each["name"]), str(each["datatype"]).upper(), tuple(int(side) for side in each["shape"]))
            for each in metadata["inputs"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise PreflightError(
            "the model's metadata has no inputs as the Open Inference protocol says", where=where,
            next_step=f"look at it: curl {where}",
        ) from error  # fmt: skip


def parse_shapes(text: str) -> dict[str, tuple[int, ...]]:
    """Parse `ids:1x384;mask:1x384`."""
    found = {}
    for part in filter(None, text.split(";")):
        name, colon, sides = part.rpartition(":")
        if not colon or not all(side.isdigit() and int(side) > 0 for side in sides.split("x")):
            raise UsageError(f"shape={part!r} is not a shape", next_step="e.g. ,shape=ids:1x384;mask:1x384")
        found[name] = tuple(int(side) for side in sides.split("x"))
    return found


def drawn(specs: Sequence[TensorSpec], shapes: Mapping[str, tuple[int, ...]], seed: int) -> list[Tensor]:
    """Draw one request's inputs; axes that the model leaves free are 1 (the batch) or must be given."""
    chance = np.random.default_rng(seed)
    known = {spec.name for spec in specs}
    if unknown := set(shapes) - known:
        raise UsageError(
            f"the model has no input {sorted(unknown)[0]}", next_step=f"its inputs: {', '.join(sorted(known))}"
        )
    return [_drawn(spec, shapes.get(spec.name, ()), chance) for spec in specs]


def _drawn(spec: TensorSpec, given: tuple[int, ...], chance: np.random.Generator) -> Tensor:
    shape = given or (*(max(1, -side) if side < 0 else side for side in spec.shape[:1]), *spec.shape[1:])
    if any(side < 1 for side in shape) or (given and len(given) != len(spec.shape)):
        raise UsageError(
            f"the input {spec.name} has the shape {list(spec.shape)}: its free axes are not known",
            next_step=f"add ,shape={spec.name}:{'x'.join('1' if side < 1 else str(side) for side in spec.shape)} "
            "behind the address, with your sizes",
        )
    if spec.datatype not in TYPES:
        raise UsageError(
            f"the input {spec.name} is of type {spec.datatype}, for which gputax draws no values",
            next_step="measure a model with numeric inputs",
        )
    if np.prod(shape, dtype=np.float64) > MOST_VALUES:
        raise UsageError(f"the input {spec.name} of {list(shape)} is too large", next_step="choose a smaller ,shape=")
    kind = np.dtype(TYPES[spec.datatype])
    if kind.kind == "f":
        values = chance.random(shape).astype(kind)
    else:
        values = chance.integers(0, 2 if kind.kind == "b" else INTEGERS_BELOW, shape).astype(kind)
    return Tensor(spec.name, spec.datatype, values)
