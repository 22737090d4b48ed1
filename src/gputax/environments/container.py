"""`container`: the worker is the only process of a container, started by docker or podman."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
from dataclasses import dataclass

from gputax.environments.environment import Described, Evidence
from gputax.environments.image import NATIVE_VARIABLES, driver_variables, lacks_gputax, limit_reasons, local_cpus
from gputax.environments.process import ChildProcess
from gputax.errors import GputaxError, PreflightError
from gputax.plan.driver import DriverChoice
from gputax.plan.environment import CONTAINER
from gputax.plan.options import EnvironmentOptions
from gputax.worker.workloads.model_store import models_folder

ENGINES = ("docker", "podman")
MODELS = "/models"
ASK_TIMEOUT_S = 30.0
# Exit codes of `docker run` itself: the daemon refused, the command is not executable, the command was not found.
EXIT_ENGINE, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND = 125, 126, 127
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

    def words(self) -> list[str]:
        """Return the command: no network, only /tmp writable, no capabilities, CPUs as planned."""
        gpus = []
        if self.gpus:
            # podman knows GPUs only by their CDI names.
            gpus = ["--gpus", str(self.gpus)] if self.engine == "docker" else ["--device", "nvidia.com/gpu=all"]
        mounts = ["--volume", f"{self.models}:{MODELS}:ro", "--env", f"GPUTAX_MODELS={MODELS}"] if self.models else []
        variables = [word for name, value in self.variables for word in ("--env", f"{name}={value}")]
        return [
            self.engine, "run", "--interactive", "--rm", "--name", self.name, "--hostname", self.name,
            "--network", "none", "--read-only", "--tmpfs", "/tmp:rw,exec,mode=1777", "--env", "HOME=/tmp",
            "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--pull", "missing",
            "--cpus", str(self.cpus), "--memory", engine_memory(self.memory), *gpus, *mounts, *variables,
            self.image, "python", "-m", "gputax.worker",
        ]  # fmt: skip


class Container:
    """Starts one container per worker and removes it, however the worker ended."""

    def __init__(self, name: str, options: EnvironmentOptions, driver: DriverChoice | None = None) -> None:
        self.name = name
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
        """Show that the worker ran in our container, under its limits."""
        plan = self._plan
        if plan is None:
            return Evidence.of(CONTAINER, ["no container was started"])
        reasons = limit_reasons(described, plan.cpus)
        if described.hostname != plan.name:
            reasons.append(f"the worker's host is {described.hostname!r}, the container's name is {plan.name!r}")
        facts = {
            "engine": plan.engine,
            "image": plan.image,
            "image_id": _asked(plan.engine, "inspect", "--format", "{{.Image}}", plan.name),
            "name": plan.name,
            "limits": {"cpu": plan.cpus, "memory": plan.memory, "gpu": plan.gpus},
            "cpu_allowance": described.cpu_allowance,
            "cgroup": described.cgroup,
            "pid": described.pid,
        }
        return Evidence.of(CONTAINER, reasons, facts)

    def _planned(self, engine: str) -> ContainerPlan:
        options, models = self._options, models_folder()
        variables = {**NATIVE_VARIABLES, **driver_variables(self._driver, options.gpu_count(self._driver.device))}
        return ContainerPlan(
            engine,
            f"gputax-{secrets.token_hex(4)}",
            options.image,
            options.cpus or local_cpus(),
            options.memory,
            options.gpu_count(self._driver.device),
            str(models) if models.is_dir() and any(models.iterdir()) else "",
            tuple(variables.items()),
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


def engine_memory(text: str) -> str:
    """Convert an amount of memory from Kubernetes' notation to docker's."""
    found = _MEMORY.fullmatch(text)
    if not found:
        raise PreflightError(f"{text!r} is not an amount of memory", next_step="e.g. --memory 4Gi")
    return found[1] + found[2].removesuffix("i").lower()


def explain(plan: ContainerPlan, code: int, words: str) -> GputaxError | None:
    """Turn the engine's message about a container that did not start into an error with a next step."""
    lower, where = words.lower(), f"{plan.engine}, image {plan.image}"
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
    _asked(plan.engine, "rm", "--force", plan.name)


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
