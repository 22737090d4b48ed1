"""Run gcloud, docker and similar programs: log their output line by line, and stop them on an interrupt."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from gputax.deploy.plan import Command
from gputax.deploy.troubles import redacted
from gputax.errors import PreflightError

TAIL_LINES = 30
# gcloud cleans up on SIGINT; after this time the process is killed.
GRACE_S = 10.0

_INSTALL = {
    "gcloud": "install the Google Cloud CLI (cloud.google.com/sdk/docs/install), then `gcloud auth login`",
    "docker": "install docker, or build elsewhere and give --image REFERENCE",
    "podman": "install podman, or build elsewhere and give --image REFERENCE",
    "gke-gcloud-auth-plugin": "gcloud components install gke-gcloud-auth-plugin",
}


@dataclass(frozen=True)
class Finished:
    """A command's exit code and the last part of its output, including stderr."""

    exit_code: int
    output: str


def require_program(name: str) -> None:
    """Raise if a program that the plan calls is not installed."""
    if shutil.which(name) is None:
        raise PreflightError(f"{name} is not installed", where="PATH", next_step=_INSTALL.get(name, f"install {name}"))


def call(command: Command, say: Callable[[str], None]) -> Finished:
    """Run one command and pass on every line of its output."""
    require_program(command.words[0])
    process = subprocess.Popen(
        command.words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=_environment(command),
    )
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            tail.append(line.rstrip("\n"))
            say(line.rstrip("\n"))
        exit_code = process.wait()
    except BaseException:
        _end(process)
        raise
    finally:
        process.stdout.close()
    return Finished(exit_code, redacted("\n".join(tail)))


def ask(command: Command) -> Finished:
    """Run one read-only command and return its stdout, or its stderr if it failed."""
    require_program(command.words[0])
    done = subprocess.run(
        command.words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=_environment(command),
    )
    output = done.stdout if done.returncode == 0 else redacted(done.stderr)
    return Finished(done.returncode, output.strip())


def _environment(command: Command) -> dict[str, str]:
    # Prompts cannot be answered through a pipe: make gcloud fail instead of waiting.
    environment = {**os.environ, "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"}
    if command.kubeconfig:
        environment["KUBECONFIG"] = command.kubeconfig
    return environment


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
