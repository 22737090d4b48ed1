"""A user's own model as the command line names it: its file or factory, its content, and what its inputs are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputax.errors import UsageError
from gputax.plan.engines import ENGINES, MODULE_ENGINE, parse_engine

HASH_DIGITS = 12
LONGEST_NAME = 40
_OWN_NAME = re.compile(rf".+@[0-9a-f]{{{HASH_DIGITS}}}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]")
_FACTORY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


@dataclass(frozen=True)
class OwnModel:
    """The options of `--model`; without a file there is none, and the workload is a built-in one."""

    file: str = ""
    """Absolute path of the ONNX file, or of the source file of a factory's module."""
    sha256: str = ""
    """Of the file and its external data; the worker refuses a file with another."""
    factory: str = ""
    """`PACKAGE.MODULE:FACTORY`, which makes a torch module; empty for an ONNX file."""
    root: str = ""
    """The folder in which the factory's package was found; it goes into the worker's import path."""
    shapes: tuple[str, ...] = ()
    """`NAME=1x384`: the axes that the file leaves free."""
    ranges: tuple[str, ...] = ()
    """`NAME=0..30521`: between which values its inputs are drawn."""
    inputs: str = ""
    """Absolute path of an .npz file with the inputs themselves; empty: they are drawn."""
    inputs_sha256: str = ""
    single: bool = False
    """The file fixes its first axis, so that only a batch of 1 can run."""

    @property
    def name(self) -> str:
        """The workload's name: file or factory, and content, never that of a built-in model."""
        if self.factory:
            return f"{self.factory}@{self.sha256[:HASH_DIGITS]}"
        return content_name(Path(self.file).name, self.sha256)

    @property
    def in_package(self) -> bool:
        """Whether the factory's module is part of a package, not a file alone."""
        return bool(self.factory) and Path(self.file).parent != Path(self.root)

    @property
    def options(self) -> list[str]:
        """The words of the command line that name it; none without a file."""
        words = ["--model", self.factory or self.file] if self.file else []
        words += [word for shape in self.shapes for word in ("--shape", shape)]
        words += [word for span in self.ranges for word in ("--input", span)]
        return [*words, *(["--inputs", self.inputs] if self.inputs else [])]

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> OwnModel:
        """Rebuild it from JSON, where tuples are lists."""
        lists = {key: tuple(data.get(key, ())) for key in ("shapes", "ranges")}
        return OwnModel(**{**data, **lists})


def content_name(title: str, sha256: str) -> str:
    """Return a name that is safe in file names and tells two contents apart."""
    return f"{_UNSAFE.sub('_', title)[-LONGEST_NAME:]}@{sha256[:HASH_DIGITS]}"


def is_own(workload: str) -> bool:
    """Whether the name is that of something of the user's, by its content."""
    return _OWN_NAME.fullmatch(workload) is not None


def is_factory(model: str) -> bool:
    """Whether `--model` names a factory of a torch module, not a file."""
    return _FACTORY.fullmatch(model) is not None


def is_module(workload: str) -> bool:
    """Whether the name is that of a torch module of the user's: only those have a colon."""
    return is_own(workload) and ":" in workload


def refuse_own_model(
    own: OwnModel, *, engine: str, weights: str = "", dataset: str = "", precision: str = "fp32"
) -> None:
    """Reject an engine that cannot run the model, and options that are for a built-in one."""
    if not own.file:
        return
    kind = ENGINES[parse_engine(engine).name]
    if own.factory and not (kind.name == MODULE_ENGINE or kind.says_nothing_of_devices):
        raise UsageError(
            f"--model {own.factory} makes a torch module, which the engine {kind.name} cannot run",
            next_step=f"drop --engine, or use {MODULE_ENGINE}; or export the module: torch.onnx.export",
        )
    if not own.factory and not (kind.takes_weights or kind.says_nothing_of_devices):
        able = " and ".join(name for name, each in ENGINES.items() if each.takes_weights)
        raise UsageError(
            f"{Path(own.file).name} is an ONNX file, which the engine {kind.name} cannot run",
            next_step=f"use {able}; for torch name a factory: --model PACKAGE.MODULE:FACTORY",
        )
    for option, value in (("weights", weights), ("dataset", dataset), ("precision", precision.removeprefix("fp32"))):
        if value:
            raise UsageError(f"--{option} is for a built-in model; --model names its own", next_step=f"drop --{option}")


def refuse_batch_of_own(own: OwnModel, batches: Sequence[int]) -> None:
    """Reject a batch for a file that takes one sample at a time."""
    if own.single and any(batch != 1 for batch in batches):
        raise UsageError(
            f"{own.name} takes one sample at a time: its file fixes the first axis, or --shape does",
            next_step="drop --batch, or give every --shape a first axis of 1"
            if own.factory
            else "drop --batch, or export the model with a dynamic batch axis",
        )
