"""Just enough of torch, over numpy, to run the torch engine where torch is not installed."""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


class Tensor:
    """A numpy array that answers to the calls the engine makes."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    @property
    def dtype(self) -> str:
        return f"torch.{self.values.dtype}"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def device(self) -> str:
        return "cpu"

    def __getitem__(self, rows: Any) -> Tensor:
        return Tensor(self.values[rows])

    def is_floating_point(self) -> bool:
        return self.values.dtype.kind == "f"

    def detach(self) -> Tensor:
        return self

    cpu = contiguous = detach

    def flatten(self) -> Tensor:
        return Tensor(self.values.reshape(-1))

    def view(self, dtype: Any) -> Tensor:
        return Tensor(np.frombuffer(self.values.tobytes(), dtype))

    def numpy(self) -> Any:
        return self.values


class Module:
    """`torch.nn.Module` as far as it is used: a subclass defines `forward`, and `weights` if it has any."""

    weights: Any = None

    def __call__(self, *words: Any, **named: Any) -> Any:
        return self.forward(*words, **named)  # type: ignore[attr-defined]

    def eval(self) -> Module:
        return self

    def to(self, *_: Any) -> Module:
        return self

    def parameters(self) -> Iterator[Tensor]:
        if self.weights is not None:
            yield Tensor(self.weights)

    def state_dict(self) -> dict[str, Tensor]:
        return {} if self.weights is None else {"weights": Tensor(self.weights)}


@contextmanager
def _inference_mode() -> Iterator[None]:
    yield


def tiny_torch() -> types.ModuleType:
    """Return the stand-in as a module for `sys.modules`."""
    torch: Any = types.ModuleType("torch")
    torch.__version__ = "stand-in"
    torch.nn = types.SimpleNamespace(Module=Module)
    torch.Tensor, torch.from_numpy, torch.uint8 = Tensor, Tensor, np.uint8
    torch.inference_mode = _inference_mode
    torch.cuda = types.SimpleNamespace(is_available=lambda: False)
    torch.set_num_threads = lambda count: None
    torch.get_num_threads = lambda: 1
    torch.seeds = []
    torch.manual_seed = torch.seeds.append
    module: types.ModuleType = torch
    return module
