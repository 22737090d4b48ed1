"""A user's own network: what its ONNX file or the options say of its inputs, and samples that fit them."""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax.errors import PreflightError, UsageError, unknown_name
from gputax.plan.own_model import OwnModel, content_name
from gputax.worker.workloads.model_store import file_sha256
from gputax.worker.workloads.onnx_header import (
    HeaderTensor,
    OnnxHeader,
    files_of,
    files_sha256,
    read_onnx_header,
    shown_tensors,
)
from gputax.worker.workloads.workload import integers, ticks

FLOATS = ("float32", "float16", "float64")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64")
# A mask of zeros and ones is a mask, and an index is valid in a table of two rows; other ranges are the user's.
DEFAULT_RANGE = (0.0, 1.0)
# Samples lie in memory twice while they are made; a gigabyte of them would not make a measurement better.
MOST_SAMPLE_BYTES = 256 << 20
_TICKS = 65535.0
_SHAPE = re.compile(r"\d+(x\d+)*")

Axes = tuple[int, ...]


@dataclass(frozen=True)
class OwnInput:
    """One input: the shape of one sample, and the values that are drawn for it."""

    name: str
    dtype: str
    shape: Axes
    low: float
    high: float

    @property
    def sample_bytes(self) -> int:
        """The size of one sample."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def drawn(self, count: int, seed: int) -> npt.NDArray[Any]:
        """Return `count` seeded samples; sample i is the same whatever the count."""
        size, key = count * math.prod(self.shape), f"own:{self.name}"
        values: npt.NDArray[Any]
        if self.dtype in FLOATS:
            values = self.low + ticks(seed, key, size).astype(np.float64) * ((self.high - self.low) / _TICKS)
        else:
            values = integers(seed, key, size, int(self.low), int(self.high) + 1)
        return values.astype(self.dtype).reshape(count, *self.shape)


@dataclass(frozen=True)
class OwnNetwork:
    """An ONNX file, or the source of a torch module, with all axes of its inputs known."""

    path: Path
    sha256: str
    inputs: tuple[OwnInput, ...]
    batched: bool
    """Axis 0 of every input is the batch axis; otherwise one run is one sample, shapes as they are."""
    fixed_batch: int | None
    """1 if only a batch of 1 can run, None if the batch axis is free."""
    precision: str
    arrays: Mapping[str, npt.NDArray[Any]] | None = None
    """The user's own samples, along the first axis; None: they are drawn."""
    inputs_name: str = ""

    @property
    def samples_text(self) -> str:
        """What the samples are, as a condition of the measurement: other shapes or ranges are another measurement."""
        batch = ("batch",) if self.batched else ()
        shapes = [f"{each.name} {each.dtype} [{', '.join(map(str, (*batch, *each.shape)))}]" for each in self.inputs]
        if self.arrays is not None:
            return f"{self.inputs_name}: {'; '.join(shapes)}"
        spans = [f"{each.low:.10g}..{each.high:.10g}" for each in self.inputs]
        drawn = (f"{shape} {span}" for shape, span in zip(shapes, spans, strict=True))
        return f"drawn: {'; '.join(drawn)}"

    def sample_count(self, wanted: int, max_batch: int) -> int:
        """Return how many samples to hold: as many as wanted, fewer if they are large, but one whole batch."""
        each = max(1, sum(one.sample_bytes for one in self.inputs))
        return max(max_batch, min(wanted, MOST_SAMPLE_BYTES // each))

    def samples(self, count: int, seed: int) -> dict[str, npt.NDArray[Any]]:
        """Return `count` samples: drawn, or the user's own, repeated or cut."""
        if self.arrays is None:
            return {each.name: each.drawn(count, seed) for each in self.inputs}
        return {
            each.name: self.arrays[each.name][np.arange(count) % len(self.arrays[each.name])] for each in self.inputs
        }


def own_network(own: OwnModel) -> OwnNetwork:
    """Read the file's header and resolve its axes; anything that is missing is an error with the option to add."""
    path, header, sha256 = _declared_by_module(own) if own.factory else _declared_by_file(own)
    _refuse_other_types(path, header)
    if own.sha256 and sha256 != own.sha256:
        raise PreflightError(
            f"the file's sha256 is {sha256[:12]}…, not {own.sha256[:12]}…: it changed since the plan was made",
            where=str(path),
            next_step="run the command again",
        )
    given = _given_shapes(own.shapes, header)
    batched, fixed = _batch_axis(header, given)
    arrays = None
    if own.inputs:
        if own.shapes or own.ranges:
            raise UsageError("--inputs has shapes and values already", next_step="drop --shape and --input")
        arrays = _own_arrays(own, header, batched)
        given = {name: (1, *values.shape[1:]) if batched else values.shape[1:] for name, values in arrays.items()}
    ranges = _ranges(own.ranges, header)
    shapes = _resolved(path, header, given, batched)
    types = [tensor.dtype for tensor in (*header.inputs, *header.outputs)]
    return OwnNetwork(
        path,
        sha256,
        tuple(
            OwnInput(
                each.name,
                each.dtype,
                shapes[each.name][int(batched) :],
                *ranges.get(each.name, _default_range(each, header)),
            )
            for each in header.inputs
        ),
        batched,
        fixed,
        "fp16" if "float16" in types else "fp32",
        arrays,
        content_name(Path(own.inputs).name, own.inputs_sha256) if own.inputs else "",
    )


def _declared_by_file(own: OwnModel) -> tuple[Path, OnnxHeader, str]:
    path = Path(own.file)
    header = read_onnx_header(path, "--model")
    return path, header, files_sha256(files_of(path, header))


def _declared_by_module(own: OwnModel) -> tuple[Path, OnnxHeader, str]:
    """Return what the options say of a torch module's inputs, and the content of its source file."""
    from gputax.worker.workloads.own_module import find_source, module_header

    path = find_source(own.factory, own.root).path
    arrays = _arrays_in(Path(own.inputs))[0] if own.inputs else None
    return path, module_header(own, arrays), file_sha256(path)


def _default_range(tensor: HeaderTensor, header: OnnxHeader) -> tuple[float, float]:
    """Return all rows of the table that the input looks up, as token ids do; else 0 to 1."""
    rows = header.table_rows.get(tensor.name, 0)
    return (0.0, rows - 1.0) if rows and tensor.dtype in INTEGERS else DEFAULT_RANGE


def _refuse_other_types(path: Path, header: OnnxHeader) -> None:
    for tensor in header.inputs:
        if tensor.dtype not in (*FLOATS, *INTEGERS, "bool"):
            raise PreflightError(
                f"no values can be made for the input {tensor.name} of type {tensor.dtype}",
                where=str(path),
                next_step="use a model whose inputs are numbers, e.g. without its tokenizer",
            )


def _given_shapes(words: Sequence[str], header: OnnxHeader) -> dict[str, Axes]:
    """Parse `NAME=1x384`, and hold each against what the file says."""
    found: dict[str, Axes] = {}
    for word in words:
        tensor, text = _named(word, "--shape", "ids=1x384", header)
        if not _SHAPE.fullmatch(text) or 0 in (axes := tuple(map(int, text.split("x")))):
            raise UsageError(f"--shape {word!r} has no sizes", next_step=f"e.g. --shape {tensor.name}=1x384")
        found[tensor.name] = axes
        _refuse_misfit(tensor, axes, f"--shape {word}")
    return found


def _refuse_misfit(tensor: HeaderTensor, axes: Axes, where: str) -> None:
    if tensor.shape is None:
        return
    fits = len(axes) == len(tensor.shape) and all(
        isinstance(size, str) or size == number for number, size in zip(axes, tensor.shape, strict=True)
    )
    if not fits:
        raise UsageError(
            f"{tensor.name} cannot have the shape {'x'.join(map(str, axes))}: the file declares "
            f"{shown_tensors((tensor,))}",
            where=where,
        )


def _batch_axis(header: OnnxHeader, given: Mapping[str, Axes]) -> tuple[bool, int | None]:
    """Return whether axis 0 is the batch axis, and the only batch that can run; None if any can.

    It is the batch axis where every input leaves it free under one name and no --shape gives it another size than 1,
    and where every input fixes it at 1. Otherwise one run is one sample.
    """
    first = {tensor.shape[0] if tensor.shape else "?" if tensor.shape is None else 0 for tensor in header.inputs}
    if first == {1}:
        return True, 1
    free = len(first) == 1 and isinstance(next(iter(first)), str)
    if free and all(axes[0] == 1 for axes in given.values()):
        return True, None
    return False, 1


def _resolved(path: Path, header: OnnxHeader, given: Mapping[str, Axes], batched: bool) -> dict[str, Axes]:
    """Return the sizes of all axes; one name in two inputs is one size. What is still free is an error."""
    known: dict[str, int] = {}
    for tensor in header.inputs:
        for size, number in zip(tensor.shape or (), given.get(tensor.name, ()), strict=False):
            if isinstance(size, str) and size != "?" and known.setdefault(size, number) != number:
                raise UsageError(
                    f"the axis {size} of {tensor.name} would be {number}, but {known[size]} in another input",
                    where=str(path),
                )
    found: dict[str, Axes] = {}
    open_inputs: list[HeaderTensor] = []
    for tensor in header.inputs:
        declared = ("?",) if tensor.shape is None else tensor.shape
        sizes: list[int | str] = list(given.get(tensor.name, declared))
        if batched and isinstance(sizes[0], str):
            sizes[0] = 1
        sizes = [known.get(size, size) if isinstance(size, str) else size for size in sizes]
        if any(isinstance(size, str) for size in sizes) or (tensor.shape is None and tensor.name not in given):
            open_inputs.append(tensor)
        else:
            found[tensor.name] = tuple(int(size) for size in sizes)
    if open_inputs:
        raise _open_axes(path, open_inputs, batched)
    return found


def _open_axes(path: Path, tensors: Sequence[HeaderTensor], batched: bool) -> UsageError:
    """Return the error for axes without a size; its next step is the options to add."""

    def option(tensor: HeaderTensor) -> str:
        if tensor.shape is None:
            return f"--shape {tensor.name}=AxBxC"
        sizes = ["1" if batched and not number else str(size) for number, size in enumerate(tensor.shape)]
        shown = (size if size.isdigit() else _placeholder(size) for size in sizes)
        return f"--shape {tensor.name}={'x'.join(shown)}"

    return UsageError(
        f"the file leaves axes free: {shown_tensors(tuple(tensors))}",
        where=str(path),
        next_step=f"add {' '.join(map(option, tensors))} with a size for each name, or --inputs FILE.npz",
    )


def _placeholder(axis: str) -> str:
    return re.sub(r"[^A-Z0-9]", "", axis.upper().replace("X", "")) or "SIZE"


def _ranges(words: Sequence[str], header: OnnxHeader) -> dict[str, tuple[float, float]]:
    """Parse `NAME=LOW..HIGH`, both ends included."""
    found: dict[str, tuple[float, float]] = {}
    for word in words:
        tensor, text = _named(word, "--input", "ids=0..30521", header)
        low, high = (_number(part) for part in (text.partition("..")[0], text.partition("..")[2]))
        if not low <= high:  # NaN too
            raise UsageError(f"--input {word!r} is not a range", next_step=f"e.g. --input {tensor.name}=0..30521")
        least, most = _limits(tensor.dtype)
        whole = tensor.dtype in FLOATS or (low.is_integer() and high.is_integer())
        if not (whole and least <= low and high <= most):
            raise UsageError(f"--input {word!r} does not fit the input's type {tensor.dtype}")
        found[tensor.name] = (low, high)
    return found


def _limits(dtype: str) -> tuple[float, float]:
    if dtype == "bool":
        return 0.0, 1.0
    limits = np.finfo(dtype) if dtype in FLOATS else np.iinfo(dtype)
    return float(limits.min), float(limits.max)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def _named(word: str, option: str, example: str, header: OnnxHeader) -> tuple[HeaderTensor, str]:
    # The last one: an input's name may contain an equals sign, sizes and numbers do not.
    name, equals, text = word.rpartition("=")
    if not equals:
        raise UsageError(f"{option} {word!r} names no input", next_step=f"e.g. {option} {example}")
    tensors = {tensor.name: tensor for tensor in header.inputs}
    if name not in tensors:
        raise unknown_name("input of the model", name, tensors)
    return tensors[name], text


def _own_arrays(own: OwnModel, header: OnnxHeader, batched: bool) -> dict[str, npt.NDArray[Any]]:
    """Read the .npz file: one array for each input, samples along the first axis."""
    path = Path(own.inputs)
    arrays, sha256 = _arrays_in(path)
    if own.inputs_sha256 and sha256 != own.inputs_sha256:
        raise PreflightError("the inputs changed since the plan was made", where=str(path), next_step="run it again")
    wanted = {tensor.name: tensor for tensor in header.inputs}
    if arrays.keys() != wanted.keys():
        raise PreflightError(
            f"the file has {', '.join(sorted(arrays)) or 'nothing'}; the model's inputs are {', '.join(wanted)}",
            where=str(path),
            next_step=f"numpy.savez(FILE, {', '.join(f'{name}=…' for name in wanted)})",
        )
    for name, values in arrays.items():
        tensor = wanted[name]
        if values.dtype != np.dtype(tensor.dtype):
            raise PreflightError(
                f"{name} is {values.dtype}, the model takes {tensor.dtype}",
                where=str(path),
                next_step=f"save {name}.astype('{tensor.dtype}')",
            )
        if not batched and tensor.shape is not None and values.ndim == len(tensor.shape):
            values = arrays[name] = values[None]
        if not values.ndim or not len(values):
            raise PreflightError(f"{name} holds no sample", where=str(path))
        _refuse_misfit(tensor, (1, *values.shape[1:]) if batched else values.shape[1:], str(path))
    if len({len(values) for values in arrays.values()}) != 1:
        counts = ", ".join(f"{name} {len(values)}" for name, values in arrays.items())
        raise PreflightError(f"the numbers of samples differ: {counts}", where=str(path))
    return arrays


def _arrays_in(path: Path) -> tuple[dict[str, npt.NDArray[Any]], str]:
    """Return the arrays of an .npz file and the file's sha256."""
    try:
        sha256 = file_sha256(path)
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}, sha256
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise PreflightError(
            f"cannot read the inputs: {error}", where=str(path), next_step="write it with numpy.savez"
        ) from error
