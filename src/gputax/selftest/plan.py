"""What a self-test asks: groups of questions, models with the engines that can run them, and the kernels' images."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from gputax.environments.driver import BUILD, native_directory
from gputax.errors import PreflightError, unknown_name
from gputax.plan.cells import Setup
from gputax.plan.driver import DriverChoice
from gputax.plan.engines import DRIVER_MODEL_ENGINE, ENGINES
from gputax.selftest.checks import Check
from gputax.worker.selftest.libraries import PROGRAM
from gputax.worker.selftest.probe import GROUPS

MODELS = ("resnet50", "bert-large", "yolos-small")
RUNTIME_GROUP, MODEL_GROUP = "runtime", "models"
# The other engines of models are on the CUDA runtime; this one calls the driver alone.
MODEL_ENGINES = (
    DRIVER_MODEL_ENGINE,
    *(name for name, kind in ENGINES.items() if kind.runs_models and name != DRIVER_MODEL_ENGINE),
)
QUICK_ON_SOFTWARE = "resnet50"
WITHOUT_ANSWERS = "its answers come from kernels, and null kernels compute nothing"
SAMPLES = 4


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    driver: DriverChoice
    quick: bool = False
    cuda_runtime: bool = False
    cudart: str = ""
    only: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    null_kernels: bool = False
    """Launches of the software device compute nothing: answers of kernels are not asked for, launches are counted."""

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of questions, in their order."""
        return tuple(name for name in self._named if not (self.null_kernels and GROUPS[name].computes))

    @property
    def groups_without_answers(self) -> tuple[str, ...]:
        """The groups that are left out because null kernels cannot answer them."""
        return tuple(name for name in self._named if name not in self.groups)

    @property
    def _named(self) -> list[str]:
        names = [name for name, group in GROUPS.items() if self.cuda_runtime or not group.runtime_only]
        return [name for name in names if not self.only or name in self.only]


def known_groups() -> tuple[str, ...]:
    """Return the names that `--only` takes."""
    return (*GROUPS, RUNTIME_GROUP, MODEL_GROUP)


def refuse_unknown_groups(names: Sequence[str]) -> None:
    """Raise for a name that is not a group."""
    for name in names:
        if name not in known_groups():
            raise unknown_name("group of the self-test", name, known_groups())


def title_of(group: str, *, null_kernels: bool = False) -> str:
    """Return a group's name for people."""
    models = "models: launches of null kernels" if null_kernels else "models, byte by byte"
    titles = {RUNTIME_GROUP: "a program on the CUDA runtime", MODEL_GROUP: models}
    return titles.get(group) or GROUPS[group].title


def images() -> dict[str, str]:
    """Return the images of the kernels as they travel to a worker."""
    folder = native_directory() / "kernels"
    found = {path.stem: base64.b64encode(path.read_bytes()).decode("ascii") for path in sorted(folder.glob("*.*"))}
    if PROGRAM not in found:
        raise PreflightError(
            "the kernels of the self-test are not built", where=str(folder), next_step=f"run `{BUILD}`"
        )
    return found


def setup_of(model: str, engine: str, request: Request) -> Setup:
    """Return what a worker prepares for the outputs of a model."""
    driver = request.driver
    count = 1 if driver.device == "software" and not request.null_kernels else SAMPLES
    return Setup(model, engine=engine, device=driver.device, sample_count=count, max_batch=1, libcuda=driver.libcuda)


def models(request: Request) -> tuple[list[tuple[str, str]], list[Check]]:
    """Return the models to run, each with an engine, and why others are left out."""
    wanted, skipped = [], []
    for model in MODELS:
        for engine in MODEL_ENGINES:
            why = _why_not(model, engine, request)
            if why:
                skipped.append(Check(MODEL_GROUP, f"{model} with {engine}", "skipped", why))
            else:
                wanted.append((model, engine))
    return wanted, skipped


def _why_not(model: str, engine: str, request: Request) -> str:
    if request.models and model not in request.models:
        return "not asked for (--model)"
    on_runtime = engine != DRIVER_MODEL_ENGINE
    if request.null_kernels and not on_runtime:
        return "null kernels compute nothing that could be compared: drop --soft-kernels null"
    if on_runtime and request.driver.device == "software" and not request.null_kernels:
        return (
            "its libraries hold machine code of GPUs, which the software device does not compute: "
            "add --soft-kernels null to compare its launches"
        )
    if on_runtime and not request.cuda_runtime:
        return "it is on the CUDA runtime: add --cuda-runtime"
    if not request.models and request.driver.device == "software" and model != QUICK_ON_SOFTWARE:
        return f"takes minutes on the software device: add --model {model}"
    return ""
