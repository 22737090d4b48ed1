"""`container`, `container:RUNTIME`: the worker is the only process of a container, started by docker or podman."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gputax.environments.environment import Described, Evidence
from gputax.environments.image import NATIVE_VARIABLES, driver_variables, lacks_gputax, limit_reasons, local_cpus
from gputax.environments.process import ChildProcess
from gputax.environments.runtime import (
    SeenRuntime,
    hides_limits,
    kernel_reasons,
    nano_cpus,
    outside_reasons,
    program_reasons,
    told_reasons,
)
from gputax.errors import GputaxError, PreflightError
from gputax.plan.driver import DriverChoice
from gputax.plan.environment import CONTAINER, EnvironmentName
from gputax.plan.options import EnvironmentOptions
from gputax.worker.probes.limits import TOLD_VARIABLE, quota_of_process
from gputax.worker.workloads.model_store import models_folder

ENGINES = ("docker", "podman")
MODELS = "/models"
ASK_TIMEOUT_S = 30.0
# Exit codes of `docker run` itself: the daemon refused, the command is not executable, the command was not found.
EXIT_ENGINE, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND = 125, 126, 127
DEFAULT_RUNTIME = SeenRuntime("")
_MEMORY = re.compile(r"(\d+)(Ki|Mi|Gi|Ti|[kKmMgGtT]?)")


@dataclass(frozen=True)
class ContainerPlan:
    """Everything on the command line of one container."""

    engine: str
    name: str
    image: str
    cpus: int
    memory: str
    gpus: int
    models: str = ""
    """A local directory with model files; empty to use those in the image."""
    variables: tuple[tuple[str, str], ...] = ()
    runtime: SeenRuntime = DEFAULT_RUNTIME
    """The OCI runtime; one without a name is the engine's default."""
    runtime_word: str = ""
    """How the engine is told the runtime: its name, or its path where the engine does not know the name."""

    @property
    def engine_words(self) -> list[str]:
        """The engine with what it needs to know for every command about this container."""
        return [self.engine, "--runtime", self.runtime_word] if self._of_podman else [self.engine]

    @property
    def _of_podman(self) -> bool:
        # podman takes a runtime for all commands, docker for `run` alone.
        return bool(self.runtime_word) and self.engine == "podman"

    def words(self) -> list[str]:
        """Return the command: no network, only /tmp writable, no capabilities, CPUs as planned."""
        gpus = []
        if self.gpus:
            # podman knows GPUs only by their CDI names.
            gpus = ["--gpus", str(self.gpus)] if self.engine == "docker" else ["--device", "nvidia.com/gpu=all"]
        mounts = ["--volume", f"{self.models}:{MODELS}:ro", "--env", f"GPUTAX_MODELS={MODELS}"] if self.models else []
        variables = [word for name, value in self.variables for word in ("--env", f"{name}={value}")]
        runtime = ["--runtime", self.runtime_word] if self.runtime_word and not self._of_podman else []
        return [
            *self.engine_words, "run", *runtime, "--interactive", "--rm", "--name", self.name, "--hostname", self.name,
            "--network", "none", "--read-only", "--tmpfs", "/tmp:rw,exec,mode=1777", "--env", "HOME=/tmp",
            "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--pull", "missing",
            "--cpus", str(self.cpus), "--memory", engine_memory(self.memory), *gpus, *mounts, *variables,
            self.image, "python", "-m", "gputax.worker",
        ]  # fmt: skip


class Container:
    """Starts one container per worker and removes it, however the worker ended."""

    def __init__(self, name: str, options: EnvironmentOptions, driver: DriverChoice | None = None) -> None:
        self.name = name
        self._runtime = EnvironmentName.parse(name).runtime
        self._options = options
        self._driver = driver or DriverChoice(needed=False)
        self._plan: ContainerPlan | None = None

    def start(self) -> ChildProcess:
        """Run the image with the worker as its command."""
        plan = self._plan = self._planned(container_engine())
        return ChildProcess(
            plan.words(), dict(os.environ), on_end=lambda: _remove(plan), explain=lambda *end: explain(plan, *end)
        )

    def evidence(self, described: Described) -> Evidence:
        """Show that the worker ran in our container, under its limits and its runtime."""
        plan = self._plan
        layer = self._runtime or CONTAINER
        if plan is None:
            return Evidence.of(layer, ["no container was started"])
        inspected = _inspected(plan)
        runtime, reasons = started_runtime(plan, inspected)
        reasons += [*program_reasons(runtime), *kernel_reasons(runtime, described)]
        outside_cpus = limit_from_outside(inspected)
        if hides_limits(described):
            reasons += told_reasons(described, plan.cpus, outside_cpus)
        else:
            reasons += limit_reasons(described, plan.cpus)
            reasons += outside_reasons(plan.cpus, outside_cpus) if described.sandbox else []
        if described.hostname != plan.name:
            reasons.append(f"the worker's host is {described.hostname!r}, the container's name is {plan.name!r}")
        facts = {
            "engine": plan.engine,
            "image": plan.image,
            "image_id": inspected.get("Image"),
            "name": plan.name,
            **runtime.facts(described),
            "limits": {"cpu": plan.cpus, "memory": plan.memory, "gpu": plan.gpus},
            "limit_from_outside_cpus": outside_cpus,
            "cpu_allowance": described.cpu_allowance,
            "cgroup": described.cgroup,
            "pid": described.pid,
        }
        return Evidence.of(layer, reasons, facts)

    def _planned(self, engine: str) -> ContainerPlan:
        options, models, cpus = self._options, models_folder(), self._options.cpus or local_cpus()
        variables = {**NATIVE_VARIABLES, **driver_variables(self._driver, options.gpu_count(self._driver.device))}
        variables[TOLD_VARIABLE] = str(cpus)
        runtime, word = engine_runtime(engine, self._runtime) if self._runtime else (DEFAULT_RUNTIME, "")
        return ContainerPlan(
            engine,
            f"gputax-{secrets.token_hex(4)}",
            options.image,
            cpus,
            options.memory,
            options.gpu_count(self._driver.device),
            str(models) if models.is_dir() and any(models.iterdir()) else "",
            tuple(variables.items()),
            runtime,
            word,
        )


def container_engine() -> str:
    """Return the first of docker and podman that works; if none does, the first installed one, which reports why."""
    here = [engine for engine in ENGINES if shutil.which(engine)]
    for engine in here:
        # Often docker is installed without a running daemon, next to a podman that works.
        if len(here) == 1 or _asked(engine, "version", "--format", "{{.Server.Version}}"):
            return engine
    if here:
        return here[0]
    raise PreflightError(
        "neither docker nor podman is installed", where="PATH", next_step="sudo apt-get install -y podman"
    )


def engine_runtime(engine: str, name: str) -> tuple[SeenRuntime, str]:
    """Return a runtime as the engine knows it, and the word that selects it; refuse a missing one, or another one."""
    # podman knows a runtime by name only from its own list of places; what is on PATH it takes by its path.
    for word in dict.fromkeys((name, (engine == "podman" and shutil.which(name)) or name)):
        seen = _known_runtime(engine, name, word)
        if seen is None:
            continue
        if reasons := program_reasons(seen):
            step = f"select it by its own name, or correct what {engine} starts for {name}"
            raise PreflightError("; ".join(reasons), where=engine, next_step=step)
        return seen, word
    known = "" if engine == "podman" else " (docker info --format '{{json .Runtimes}}' lists them)"
    raise PreflightError(
        f"{engine} has no runtime {name!r}{known}",
        where=f"environment container:{name}",
        next_step="see docs/runtimes.md for where to get it; gputax doctor lists the runtimes of this machine",
    )


def ready_runtime(name: str, image: str) -> bool:
    """Whether a container of this image would start under this runtime, as far as the engine says; never raises."""
    try:
        engine = container_engine()
        engine_runtime(engine, name)
    except GputaxError:
        return False
    return _asked(engine, "image", "inspect", image) is not None


def _known_runtime(engine: str, name: str, word: str) -> SeenRuntime | None:
    if engine == "podman":
        host = (_asked_json(engine, "--runtime", word, "info", "--format", "json") or {}).get("host") or {}
        runtime = host.get("ociRuntime") or {}
        if not runtime.get("path"):
            return None
        version = str(runtime.get("version") or "")
        return SeenRuntime(name, str(runtime["path"]), _first_line(version), str(host.get("kernel") or ""))
    info = _asked_json(engine, "info", "--format", "{{json .}}") or {}
    runtime = (info.get("Runtimes") or {}).get(word)
    if runtime is None:
        return None
    program = str(runtime.get("path") or runtime.get("runtimeType") or "")
    found = shutil.which(program) if program else None
    version = (_asked(found, "--version") or "") if found else ""
    return SeenRuntime(name, program, _first_line(version), str(info.get("KernelVersion") or ""))


def started_runtime(plan: ContainerPlan, inspected: Mapping[str, Any]) -> tuple[SeenRuntime, list[str]]:
    """Return the runtime with which the engine says it started the container, and why that is not the requested one."""
    said = str(inspected.get("OCIRuntime") or (inspected.get("HostConfig") or {}).get("Runtime") or "")
    if not plan.runtime.name:
        return replace(plan.runtime, program=said), []
    if not said:
        return plan.runtime, [f"{plan.engine} does not say which runtime started the container"]
    if said in (plan.runtime.name, plan.runtime_word):
        return plan.runtime, []
    return replace(plan.runtime, program=said), [f"{plan.engine} started the runtime {said}, not {plan.runtime.name}"]


def limit_from_outside(inspected: Mapping[str, Any]) -> float | None:
    """Return the container's CPU limit: as its control group has it, or as the engine set it on another machine."""
    pid = (inspected.get("State") or {}).get("Pid")
    if isinstance(pid, int) and pid > 0 and Path(f"/proc/{pid}").exists():
        return quota_of_process(pid)
    return nano_cpus(inspected.get("HostConfig") or {})


def engine_memory(text: str) -> str:
    """Convert an amount of memory from Kubernetes' notation to docker's."""
    found = _MEMORY.fullmatch(text)
    if not found:
        raise PreflightError(f"{text!r} is not an amount of memory", next_step="e.g. --memory 4Gi")
    return found[1] + found[2].removesuffix("i").lower()


def explain(plan: ContainerPlan, code: int, words: str) -> GputaxError | None:
    """Turn the engine's message about a container that did not start into an error with a next step."""
    lower, where = words.lower(), f"{plan.engine}, image {plan.image}"
    if plan.runtime_word and "runtime" in lower and not lacks_gputax(words):
        step = f"{shlex.join(plan.engine_words)} run --rm {plan.image} true"
        what = f"the runtime {plan.runtime.name} cannot start the container: {words}"
        return PreflightError(what, where=where, next_step=step)
    if lacks_gputax(words) or code in (EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND):
        return PreflightError(
            f"gputax is missing in the image: {words}", where=where, next_step="docker build -f docker/Dockerfile ."
        )
    if code != EXIT_ENGINE:
        return None
    if "permission denied" in lower and "socket" in lower:
        step = 'sudo usermod -aG docker "$USER", then log in again'
    elif "cannot connect to the docker daemon" in lower or "is the docker daemon running" in lower:
        step = "sudo systemctl start docker"
    elif "unable to find image" in lower or "no such image" in lower or "pull access denied" in lower:
        step = f"{plan.engine} build -f docker/Dockerfile -t {plan.image} . (or select another with --image)"
    elif "could not select device driver" in lower or "nvidia.com/gpu" in lower:
        step = "install the NVIDIA container toolkit, or measure without a GPU: --gpus 0"
    elif "range of cpus" in lower:
        step = "ask for fewer with --cpus"
    else:
        step = f"{plan.engine} run --rm {plan.image} gputax --version"
    return PreflightError(f"{plan.engine} cannot start the container: {words}", where=where, next_step=step)


def _remove(plan: ContainerPlan) -> None:
    """Remove the container: it keeps running when only the engine's client is killed."""
    _asked(*plan.engine_words, "rm", "--force", plan.name)


def _inspected(plan: ContainerPlan) -> dict[str, Any]:
    """Return what the engine says of the container; empty if it says nothing."""
    found = _asked_json(*plan.engine_words, "inspect", "--type", "container", plan.name)
    return dict(found[0]) if isinstance(found, list) and found and isinstance(found[0], Mapping) else {}


def _asked_json(*words: str) -> Any:
    try:
        return json.loads(_asked(*words) or "null")
    except ValueError:
        return None


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _asked(*words: str) -> str | None:
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=ASK_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
