"""A torch module as the engine runs it: its arguments, its outputs, its precision and a digest of its parameters."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gputax.errors import EngineError, PreflightError, UsageError
from gputax.plan.own_model import OwnModel
from gputax.worker.engines.engine import EngineRequest
from gputax.worker.workloads.own_model import own_network
from gputax.worker.workloads.own_module import make_module

# numpy has no other type for the inputs.
PRECISIONS = {"torch.float32": "fp32", "torch.float16": "fp16"}


@dataclass(frozen=True)
class TorchModel:
    """A module, and how it is called."""

    module: Any
    names: Mapping[str, str]
    """Our input names -> the arguments of its forward."""
    outputs: Callable[[Any], Iterator[Any]]
    """Yields the tensors of what it returned."""
    precision: str
    facts: dict[str, Any] = field(default_factory=dict)
    batched: bool = True
    """Samples of one batch lie along axis 0 of the inputs; otherwise one sample is the whole of each input."""


def own_torch_model(torch: Any, request: EngineRequest) -> TorchModel:
    """Make the user's module; weights that it draws itself are seeded, so that two sides have the same."""
    network = own_network(request.own)
    torch.manual_seed(request.seed)
    module = make_module(request.own, torch)
    names = [each.name for each in network.inputs]
    refuse_other_arguments(request.own, module.forward, names)
    return TorchModel(
        module,
        {name: name for name in names},
        lambda output: tensors_in(output, torch),
        _precision(request.own, module, network.precision),
        {
            "weights": "own",
            "weights_sha256": parameters_sha256(module, torch),
            "model_source_sha256": network.sha256,
        },
        network.batched,
    )


def refuse_other_arguments(own: OwnModel, forward: Callable[..., Any], names: list[str]) -> None:
    """Reject names that are not arguments of the module's forward, and required arguments that have no value."""
    try:
        parameters = inspect.signature(forward).parameters.values()
    except (TypeError, ValueError):
        return  # a compiled or scripted module says nothing: the call itself will
    by_name = {each.name: each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)}
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    signature = f"forward({', '.join(by_name)}{', **others' if takes_any else ''})"
    unknown = [name for name in names if name not in by_name]
    if unknown and not takes_any:
        raise UsageError(
            f"the module's {signature} has no argument {unknown[0]}",
            where=f"--model {own.factory}",
            next_step=f"name its arguments: {' '.join(f'--shape {name}=1xN' for name in by_name)}",
        )
    missing = [name for name, each in by_name.items() if each.default is each.empty and name not in names]
    if missing:
        raise UsageError(
            f"the module's {signature} needs {missing[0]}, which has no value",
            where=f"--model {own.factory}",
            next_step=f"add {' '.join(f'--shape {name}=1xN' for name in missing)}",
        )


def parameters_sha256(module: Any, torch: Any) -> str:
    """Return a digest of the module's parameters and buffers: names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        if not hasattr(value, "detach"):
            continue
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        raw = value.detach().cpu().contiguous().flatten()
        # As bytes: numpy does not know every type of torch.
        digest.update(raw.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def tensors_in(output: Any, torch: Any) -> Iterator[Any]:
    """Yield the tensors of what a forward returned: one, or some in tuples, lists, dictionaries and output classes."""
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from tensors_in(value, torch)
    elif isinstance(output, tuple | list):
        for value in output:
            yield from tensors_in(value, torch)


def forward_failed(own: OwnModel, error: Exception) -> EngineError:
    """Return the error for a forward that raised; what it said is the only hint there is."""
    first = str(error).strip().partition("\n")[0]
    return EngineError(
        f"the module's forward failed: {type(error).__name__}: {first}",
        where=f"--model {own.factory}",
        next_step="check --shape, and --input: whole numbers (0..30521) make int64, others (0.0..1.0) float32",
    )


def _precision(own: OwnModel, module: Any, of_inputs: str) -> str:
    """Return the precision of the module's own weights; a module without any has that of its inputs."""
    floats = [str(each.dtype) for each in module.parameters() if each.is_floating_point()]
    if not floats:
        return of_inputs
    if floats[0] not in PRECISIONS:
        raise PreflightError(
            f"the module's weights are {floats[0]}, for which no inputs can be made",
            where=f"--model {own.factory}",
            next_step="let the factory return module.float() or module.half()",
        )
    return PRECISIONS[floats[0]]
