"""A torch module of the user's own: its factory is found without being imported, and called in the worker."""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from gputax.errors import GputaxError, PreflightError, UsageError
from gputax.plan.own_model import OwnModel
from gputax.worker.workloads.onnx_header import HeaderTensor, OnnxHeader

_WHOLE = re.compile(r"[+-]?\d+\.\.[+-]?\d+")
FREE = "batch"


@dataclass(frozen=True)
class ModuleSource:
    """Where a module's source is."""

    path: Path
    root: str
    """The entry of the import path in which its first package was found."""


def find_source(factory: str, root: str = "") -> ModuleSource:
    """Find the source of `PACKAGE.MODULE:FACTORY` in `root` and on the import path; no code of the user's runs."""
    name = factory.partition(":")[0]
    places = [place or str(Path.cwd()) for place in ([root] if root else []) + sys.path]
    # A parent package would be imported by importlib.util.find_spec: here its folders are followed by hand.
    importlib.invalidate_caches()
    spec, path = _spec(name.partition(".")[0], places), ""
    found = spec
    for number, part in enumerate(name.split(".")[1:], 2):
        if found is None or found.submodule_search_locations is None:
            break
        found = _spec(".".join(name.split(".")[:number]), list(found.submodule_search_locations))
        path = part
    if spec is None or found is None or found.name != name:
        missing = name.partition(".")[0] if spec is None else path or name
        raise PreflightError(
            f"there is no Python module {name}: {missing} is not found",
            where=f"--model {factory}",
            next_step="start gputax in the folder that holds it, or install its package beside gputax "
            f"({sys.executable} -m pip install …), for a container or a pod into its image",
        )
    if found.origin is None or not Path(found.origin).is_file() or found.origin == "built-in":
        raise PreflightError(
            f"{name} has no source file, so that its content cannot be named",
            where=f"--model {factory}",
            next_step=f"name the module that defines the factory, e.g. {name}.MODULE:FACTORY",
        )
    file = Path(found.origin).absolute()
    depth = name.count(".") + (1 if found.submodule_search_locations is not None else 0)
    return ModuleSource(file, str(file.parents[depth]))


def _spec(name: str, places: list[str]) -> ModuleSpec | None:
    return PathFinder.find_spec(name, places)


def module_header(own: OwnModel, arrays: dict[str, Any] | None) -> OnnxHeader:
    """Return the inputs as the options declare them: a torch module itself declares neither shapes nor types."""
    if arrays is not None:
        tensors = [HeaderTensor(name, str(each.dtype), (FREE, *each.shape[1:])) for name, each in arrays.items()]
        return _header(tensors)
    if not own.shapes:
        raise UsageError(
            "a torch module does not declare its inputs",
            where=f"--model {own.factory}",
            next_step="add --shape NAME=1x3x224x224 for each argument of its forward (and --input NAME=0..30521 for "
            "whole numbers), or --inputs FILE.npz",
        )
    whole = {word.rpartition("=")[0] for word in own.ranges if _WHOLE.fullmatch(word.rpartition("=")[2])}
    sizes = dict(_sizes(own.shapes))
    batched = all(axes[:1] == ("1",) for axes in sizes.values())
    return _header(
        [
            HeaderTensor(
                name,
                "int64" if name in whole else "float32",
                (FREE if batched else _number(axes[0]), *map(_number, axes[1:])),
            )
            for name, axes in sizes.items()
        ]
    )


def _header(tensors: list[HeaderTensor]) -> OnnxHeader:
    return OnnxHeader(tuple(tensors), (), 0, 0, ())


def _sizes(words: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for word in words:
        name, _, text = word.rpartition("=")
        if name:
            yield name, tuple(text.split("x"))


def _number(text: str) -> int | str:
    """Return the size; what is not one is refused where the option is read."""
    return int(text) if text.isascii() and text.isdigit() else "?"


def import_factory(own: OwnModel) -> Callable[[], Any]:
    """Import the module here, in the worker, and return its factory."""
    name, _, attribute = own.factory.partition(":")
    source = find_source(own.factory, own.root)
    if source.root not in sys.path:
        sys.path.insert(0, source.root)
    try:
        found: Any = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise _of_the_user(
            own, f"importing {name} failed: {type(error).__name__}: {error}", f'python -c "import {name}"'
        ) from error
    if Path(found.__file__ or "").resolve() != source.path.resolve():
        raise PreflightError(
            f"the worker has loaded another module {name} already: {found.__file__}",
            where=str(source.path),
            next_step="give yours another name",
        )
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise PreflightError(
                f"{name} has no {attribute}",
                where=str(source.path),
                next_step=f"define `def {attribute}() -> torch.nn.Module` there, or name one of its own: "
                f"{_names_of(sys.modules[name])}",
            )
        found = getattr(found, part)
    if not callable(found):
        raise PreflightError(
            f"{attribute} is a {type(found).__name__} and cannot be called",
            where=str(source.path),
            next_step=f"name a function or a class: --model {name}:FACTORY",
        )
    factory: Callable[[], Any] = found
    return factory


def make_module(own: OwnModel, torch: Any) -> Any:
    """Call the factory and return its torch module, or say what it returned instead."""
    # A tenant's --json is on stdout: what the user's code prints must not be in it.
    with contextlib.redirect_stdout(sys.stderr):
        factory = import_factory(own)
        return factory if isinstance(factory, torch.nn.Module) else _made(own, factory, torch)


def _made(own: OwnModel, factory: Callable[[], Any], torch: Any) -> Any:
    try:
        module = factory()
    except (Exception, SystemExit) as error:
        raise _of_the_user(
            own,
            f"the factory failed: {type(error).__name__}: {error}",
            "check that it takes no argument: python -c "
            f'"from {own.factory.partition(":")[0]} import *; {own.factory.partition(":")[2]}()"',
        ) from error
    if not isinstance(module, torch.nn.Module):
        raise PreflightError(
            f"the factory returned a {type(module).__name__}, not a torch.nn.Module",
            where=f"--model {own.factory}",
            next_step="let it return the module itself",
        )
    return module


def _of_the_user(own: OwnModel, text: str, next_step: str) -> GputaxError:
    return PreflightError(text, where=f"--model {own.factory}", next_step=next_step)


def _names_of(module: Any) -> str:
    """Return a few names that the module itself defines and that can be called."""
    own = [
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
    ]
    return ", ".join(sorted(own)[:5]) or "it defines nothing that can be called"
