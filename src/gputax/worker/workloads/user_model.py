"""Fit a user's own ONNX file to a workload: which input is which, its layout, its type, its batch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from gputax.errors import PreflightError
from gputax.worker.workloads.manifest import file_sha256
from gputax.worker.workloads.onnx_header import HeaderTensor, OnnxHeader, read_onnx_header
from gputax.worker.workloads.workload import TensorSpec, Workload

# Types that an engine can convert our samples to without changing their meaning.
_ACCEPTED_TYPES: dict[str, tuple[str, ...]] = {
    "float32": ("float32", "float16"),
    "int64": ("int64", "int32"),
}


@dataclass(frozen=True)
class InputBinding:
    """One of the workload's inputs and the file's name, type and layout for it."""

    source: str
    name: str
    dtype: str
    layout: str
    """`NCHW` or `NHWC` for images, else empty. The workload's own samples are NCHW."""


@dataclass(frozen=True)
class OutputBinding:
    """One of the workload's outputs and the file's name and type for it."""

    source: str
    name: str
    dtype: str


@dataclass(frozen=True)
class UserModel:
    """A user's ONNX file that matches the workload."""

    path: Path
    inputs: tuple[InputBinding, ...]
    outputs: tuple[OutputBinding, ...]
    all_outputs: tuple[str, ...]
    fixed_batch: int | None
    """The only batch size that the file takes, or None if the batch axis is free."""
    opset: int
    files: tuple[Path, ...]
    """The file itself, and its external data."""
    notes: tuple[str, ...] = ()


def describe_user_model(path: Path, workload: Workload) -> UserModel:
    """Read the file's header and bind it to the workload, or say what it has and what is expected."""
    header = read_onnx_header(path)
    files = (path, *(path.parent / name for name in header.external_files))
    missing = [file for file in files if not file.is_file()]
    if missing:
        raise PreflightError(
            f"the weights refer to {missing[0].name}, which does not exist",
            where=str(path),
            next_step=f"put {missing[0].name} into {path.parent}",
        )
    inputs, batches, notes = [], set(), []
    for spec in workload.inputs:
        tensor = _named(spec, header.inputs, alone=len(workload.inputs) == len(header.inputs) == 1)
        layout = _layout(spec, tensor) if tensor else None
        if tensor is None or layout is None or tensor.dtype not in _ACCEPTED_TYPES[spec.dtype]:
            raise _incompatible(path, workload, header)
        inputs.append(InputBinding(spec.name, tensor.name, tensor.dtype, layout))
        batches.add(tensor.shape[0] if tensor.shape else "?")
        if layout == "NCHW" and _layout(spec, tensor, ("NHWC",)) is not None:
            notes.append(f"{tensor.name} does not fix its axes: NCHW is assumed")
    fixed = {size for size in batches if isinstance(size, int)}
    if len(header.inputs) != len(workload.inputs) or len(fixed) > 1:
        raise _incompatible(path, workload, header)
    return UserModel(
        path,
        tuple(inputs),
        _outputs(path, workload, header),
        tuple(tensor.name for tensor in header.outputs),
        fixed.pop() if fixed else None,
        header.opset,
        files,
        tuple(notes),
    )


def user_model_sha256(model: UserModel) -> str:
    """Return the file's sha256; with external data, the sha256 of all the files' sha256s."""
    digests = [file_sha256(file) for file in model.files]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _outputs(path: Path, workload: Workload, header: OnnxHeader) -> tuple[OutputBinding, ...]:
    """Bind by name first; the rest by shape and in order."""
    by_name = {spec.name: _named(spec, header.outputs, alone=False) for spec in workload.outputs}
    free = [tensor for tensor in header.outputs if tensor not in by_name.values()]
    bindings = []
    for spec in workload.outputs:
        tensor = by_name[spec.name]
        if tensor is None:
            tensor = next((each for each in free if each.shape and _layout(spec, each) is not None), None)
            if tensor is None:
                raise _incompatible(path, workload, header)
            free.remove(tensor)
        bindings.append(OutputBinding(spec.name, tensor.name, tensor.dtype))
    return tuple(bindings)


def _named(spec: TensorSpec, tensors: tuple[HeaderTensor, ...], *, alone: bool) -> HeaderTensor | None:
    """Return the tensor with the spec's name or alias; a single one needs no name."""
    if alone:
        return tensors[0]
    names = (spec.name, *spec.aliases)
    # TensorFlow's exporters append the number of the output, as in input_ids:0.
    return next((tensor for tensor in tensors if tensor.name.partition(":")[0] in names), None)


def _layout(spec: TensorSpec, tensor: HeaderTensor, layouts: tuple[str, ...] = ("NCHW", "NHWC")) -> str | None:
    """Return the layout in which the shapes fit ("" if there is only one), or None."""
    if tensor.shape is None:
        return "NCHW" if len(spec.shape) == 3 and "NCHW" in layouts else ""
    own = tensor.shape[1:]
    if len(spec.shape) != 3:
        return "" if _fits(spec.shape, own) else None
    channels, height, width = spec.shape
    wanted = {"NCHW": spec.shape, "NHWC": (height, width, channels)}
    return next((layout for layout in layouts if _fits(wanted[layout], own)), None)


def _fits(wanted: tuple[int, ...], own: tuple[int | str, ...]) -> bool:
    return len(wanted) == len(own) and all(
        isinstance(size, str) or size == number for number, size in zip(wanted, own, strict=True)
    )


def _incompatible(path: Path, workload: Workload, header: OnnxHeader) -> PreflightError:
    def wanted(specs: tuple[TensorSpec, ...]) -> str:
        return ", ".join(f"{spec.name} {spec.dtype} [batch, {', '.join(map(str, spec.shape))}]" for spec in specs)

    def found(tensors: tuple[HeaderTensor, ...]) -> str:
        return ", ".join(
            f"{tensor.name} {tensor.dtype} "
            + ("[?]" if tensor.shape is None else f"[{', '.join(map(str, tensor.shape))}]")
            for tensor in tensors
        )

    return PreflightError(
        f"the file does not match {workload.name}: it has inputs {found(header.inputs)} and outputs "
        f"{found(header.outputs)}; expected {wanted(workload.inputs)} and {wanted(workload.outputs)}",
        where=str(path),
        next_step="export the model with these inputs and outputs, or choose the workload that it belongs to",
    )
