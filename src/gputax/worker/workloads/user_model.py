"""A user's weights for a built-in workload: fit the file's inputs, layout and type to it, or refuse it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gputax.errors import PreflightError
from gputax.worker.workloads.onnx_header import (
    HeaderTensor,
    OnnxHeader,
    files_of,
    read_onnx_header,
    shown_tensors,
)
from gputax.worker.workloads.workload import TensorSpec, Workload

# MLPerf's ResNet-50 has 1001 classes, and exporters fold statistics into weights; another network differs by far more.
WEIGHTS_TOLERANCE = 0.1
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
    files = files_of(path, header)
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


def refuse_foreign_network(path: Path, workload: Workload) -> None:
    """Raise if the file has another number of weights than the workload: a small network must not pass for it."""
    found = read_onnx_header(path).weight_values
    wanted = sum(parameter.size for parameter in workload.parameters)
    if abs(found - wanted) > WEIGHTS_TOLERANCE * wanted:
        raise PreflightError(
            f"the file is not {workload.name}: it has {found:,} weights, {workload.name} has {wanted:,}",
            where=str(path),
            next_step=f"measure it under its own name: --model {path.name} instead of --weights",
        )


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

    return PreflightError(
        f"the file does not match {workload.name}: it has inputs {shown_tensors(header.inputs)} and outputs "
        f"{shown_tensors(header.outputs)}; expected {wanted(workload.inputs)} and {wanted(workload.outputs)}",
        where=str(path),
        next_step="choose the workload that it belongs to, or measure it under its own name with --model",
    )
