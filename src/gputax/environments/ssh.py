"""`ssh:HOST`: the worker is a process on another machine, started with the user's own ssh."""

from __future__ import annotations

import os
import shlex
import shutil

from gputax.environments.environment import Described, Evidence
from gputax.environments.image import lacks_gputax
from gputax.environments.process import ChildProcess
from gputax.errors import GputaxError, PreflightError, UsageError
from gputax.plan.driver import DriverChoice
from gputax.plan.environment import EnvironmentName
from gputax.plan.options import EnvironmentOptions

REMOTE_COMMAND = "python3 -m gputax.worker"
# No terminal, no interactive prompt, and a dead connection is detected within a minute.
SSH_WORDS = (
    "ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15",
    "-o", "ServerAliveCountMax=3",
)  # fmt: skip
EXIT_SSH = 255
EXIT_NOT_FOUND = 127


class Ssh:
    """Starts the worker with `ssh HOST python3 -m gputax.worker`."""

    def __init__(self, name: str, options: EnvironmentOptions, driver: DriverChoice | None = None) -> None:
        self.name = name
        self._host = EnvironmentName.parse(name).host
        self._command = options.remote_command or REMOTE_COMMAND
        if not self._host or self._host.startswith("-"):
            raise UsageError(f"{name!r} has no host", next_step="e.g. --env ssh:gpu-node-1")
        if driver is not None and driver.needed and (driver.libcuda or driver.device == "software"):
            raise UsageError(
                "--device software and --libcuda are not supported over ssh",
                next_step="set LD_LIBRARY_PATH with --remote-command: "
                "'env LD_LIBRARY_PATH=native/build/software python3 -m gputax.worker'",
            )

    def start(self) -> ChildProcess:
        """Start the worker on the host."""
        if not shutil.which("ssh"):
            raise PreflightError(
                "ssh is not installed", where="PATH", next_step="sudo apt-get install -y openssh-client"
            )
        words = [*SSH_WORDS, self._host, f"exec env PYTHONUNBUFFERED=1 {self._command}"]
        return ChildProcess(words, dict(os.environ), explain=self.explain)

    def evidence(self, described: Described) -> Evidence:
        """Report which machine it was; ssh is a transport, not a layer."""
        reasons = [] if described.hostname else ["the worker did not report its host name"]
        facts = {
            "host": self._host,
            "hostname": described.hostname,
            "kernel": described.host.get("kernel"),
            "container_hints": described.host.get("container_hints"),
            "cgroup": described.cgroup,
            "pid": described.pid,
        }
        return Evidence.of("none", reasons, facts)

    def explain(self, code: int, words: str) -> GputaxError | None:
        """Turn a message of ssh or of the remote shell into an error with a next step."""
        lower, host = words.lower(), shlex.quote(self._host)
        if lacks_gputax(words) or code == EXIT_NOT_FOUND:
            return PreflightError(
                f"gputax is not installed on {self._host}: {_last_line(words)}",
                where=self._command,
                next_step=f"install this version there, or specify how to start it: "
                f"--remote-command '/path/to/.venv/bin/python -m gputax.worker' (to look around: ssh {host})",
            )
        if code != EXIT_SSH:
            return None
        if "host key verification failed" in lower or "remote host identification has changed" in lower:
            step = f"log in once by hand and check its key: ssh {host}"
        elif "permission denied" in lower:
            step = f"ssh-copy-id {host}"
        elif "could not resolve" in lower or "name or service not known" in lower:
            step = "check the name, or add it to ~/.ssh/config"
        else:
            step = f"ssh -v {host} true"
        return PreflightError(f"ssh cannot reach {self._host}: {_last_line(words)}", where=self.name, next_step=step)


def _last_line(words: str) -> str:
    return next((line for line in reversed(words.splitlines()) if line.strip()), "no output")
