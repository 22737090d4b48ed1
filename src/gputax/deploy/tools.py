"""The external tools of a deployment: programs and one cluster's API, their failures, and no secret in their output."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gputax.deploy.plan import Command, Manifest
from gputax.errors import PreflightError

if TYPE_CHECKING:
    from gputax.kubernetes.client import Cluster


ABSENT = re.compile(r"not.?found|does not exist|\b404\b|no such|could not be found", re.IGNORECASE)


@dataclass(frozen=True)
class Trouble:
    """A pattern in a tool's output, its meaning and the next step; {project}, {zone} and {region} are filled in."""

    pattern: str
    what: str
    next_step: str


TROUBLES: tuple[Trouble, ...] = (
    Trouble(
        r"invalid_grant|reauthentication|gcloud auth login|do not currently have an active account",
        "not logged in to Google Cloud",
        "gcloud auth login",
    ),
    Trouble(
        r"billing.{0,60}(disabled|not enabled|account)|BILLING_DISABLED",
        "the project has no billing account",
        "gcloud billing projects link {project} --billing-account=ACCOUNT",
    ),
    Trouble(
        r"SERVICE_DISABLED|API has not been used|it is disabled",
        "a Google API is not enabled in the project",
        "gcloud services enable container.googleapis.com artifactregistry.googleapis.com --project={project}",
    ),
    Trouble(
        r"quota.{0,80}exceeded|QUOTA_EXCEEDED|insufficient regional quota|GPUS_ALL_REGIONS",
        "the project's quota is too small",
        "gcloud compute regions describe {region} --project={project} --format='table(quotas)'; "
        "request more in the console (IAM, Quotas), or use --spot, which has its own quota",
    ),
    Trouble(
        r"RESOURCE_POOL_EXHAUSTED|GCE_STOCKOUT|does not have enough resources|out of resources",
        "the zone has no capacity for this machine",
        "use another --zone, or try again later",
    ),
    Trouble(
        r"PERMISSION_DENIED|Permission .{0,80}denied|\b403\b|not have .{0,40}permission|Required .{0,80}permission",
        "the account is missing a permission",
        "gcloud projects get-iam-policy {project}; roles/container.admin, roles/artifactregistry.admin and "
        "roles/serviceusage.serviceUsageAdmin are enough",
    ),
    Trouble(
        r"Cannot connect to the Docker daemon|Is the docker daemon running",
        "the docker daemon is not running",
        "start docker (`sudo systemctl start docker`), or build elsewhere and give --image",
    ),
    Trouble(r"no space left on device", "the disk is full", "df -h; docker system prune"),
    Trouble(
        r"unauthorized|denied: |authentication required",
        "the registry rejected the push",
        "gcloud auth configure-docker {region}-docker.pkg.dev",
    ),
    Trouble(
        r"could not resolve|name resolution|connection (refused|reset|timed out)|network is unreachable|TLS handshake",
        "the network is not reachable",
        "check this machine's internet connection",
    ),
)


def trouble_in(output: str) -> Trouble | None:
    """Return the first known failure in a tool's output."""
    return next((each for each in TROUBLES if re.search(each.pattern, output, re.IGNORECASE | re.DOTALL)), None)


def useful_line(output: str) -> str:
    """Return the most useful line: gcloud's ERROR line, or the last non-empty one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR:", "error:", "Error"))]
    return (errors or lines or ["no output"])[-1][:300]


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


class ClusterAccess(Protocol):
    """The part of `client.Cluster` that a deployment uses."""

    def version(self) -> str:
        """Return the API server's version."""

    def apply(self, manifest: Manifest) -> Manifest:
        """Create or update one object."""

    def get(self, kind: str, name: str, *, namespace: str = "") -> Manifest | None:
        """Return one object, or None."""

    def list(
        self,
        kind: str,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
        namespace: str = "",
    ) -> list[Manifest]:
        """Return the objects of a kind."""

    def patch(self, kind: str, name: str, change: Manifest, *, namespace: str = "") -> Manifest:
        """Change fields of one object; None removes a field."""

    def delete(self, kind: str, name: str, *, namespace: str = "") -> bool:
        """Delete one object; return False if it did not exist."""

    def log(self, pod: str, *, tail_lines: int | None = None, namespace: str = "") -> str:
        """Return a pod's log."""

    def close(self) -> None:
        """Close the connections."""


class Tools(Protocol):
    """Programs, the cluster, and time."""

    def call(self, command: Command, say: Callable[[str], None]) -> Finished:
        """Run a command that changes something."""

    def ask(self, command: Command) -> Finished:
        """Run a command that only reads."""

    def cluster(self) -> ClusterAccess:
        """Return the cluster's API."""

    def sleep(self, seconds: float) -> None:
        """Wait."""

    def seconds(self) -> float:
        """Return the time of a monotonic clock."""


class RealTools:
    """The real tools; `kubeconfig` is the deployment's own file, if it has one."""

    def __init__(
        self, kubeconfig: str = "", context: str = "", namespace: str = "default", expected_server: str = ""
    ) -> None:
        self._kubeconfig = kubeconfig
        self._expected_server = expected_server
        self._context = context
        self._namespace = namespace
        self._cluster: Cluster | None = None

    def call(self, command: Command, say: Callable[[str], None]) -> Finished:
        """Run a command that changes something."""
        return call(command, say)

    def ask(self, command: Command) -> Finished:
        """Run a command that only reads."""
        return ask(command)

    def cluster(self) -> Cluster:
        """Connect once; raise if the context points to another cluster than the deployment's."""
        if self._cluster is None:
            from gputax.kubernetes.client import Cluster

            if self._kubeconfig:
                os.environ["KUBECONFIG"] = self._kubeconfig
            found = Cluster(self._context, self._namespace)
            if self._expected_server and found.server != self._expected_server:
                raise PreflightError(
                    f"this deployment is on {self._expected_server}, but the context now points to {found.server}",
                    where=f"context {self._context}",
                    next_step="set KUBECONFIG to the kubeconfig of that cluster",
                )
            self._cluster = found
        return self._cluster

    def close(self) -> None:
        """Close the connections."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def seconds(self) -> float:
        """Return the monotonic clock."""
        return time.monotonic()


REMOVED = "(removed)"
_NAMES = r"(?:token|passw(?:or)?d|passphrase|secret|(?:api|access|account|private)[_-]?key)"
# Every repetition is bounded, or ends where the next match could begin: a pod's log may be written to take long.
_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, flags), shown)
    for pattern, flags, shown in (
        # A key as a whole; and its lines, because a program's output arrives line by line. 64 hex digits are a digest.
        (
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?:[^-]|-(?!----)){0,20000}+"
            r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----)?",
            0,
            REMOVED,
        ),
        (r"^(?![0-9a-f]{64}$)[A-Za-z0-9+/]{60,76}={0,2}$", re.MULTILINE, REMOVED),
        (r"(authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:basic|bearer|token)\s{1,3})[^\s\"']+", re.IGNORECASE, r"\1"),
        (r"(?<=bearer )[^\s\"']+", re.IGNORECASE, REMOVED),
        # In JSON only a text is a secret: a number in its place would no longer be one afterwards.
        (rf"({_NAMES}\"\s{{0,3}}:\s{{0,3}}\")(?!\(removed)(?:[^\"\\]|\\.)+", re.IGNORECASE, r"\1"),
        (rf"({_NAMES}(?:\s?=\s?|:\s?)[\"']?)(?!\(removed)[^\s\"',;&\\]+", re.IGNORECASE, r"\1"),
        (rf"(--[a-z-]{{0,30}}{_NAMES}\s)(?!\(removed)[^\s\"'-][^\s\"']*", re.IGNORECASE, r"\1"),
        (r"(?<=://)[^\s/:@\"']{0,200}:[^\s/@\"']{1,500}(?=@)", 0, REMOVED),
        (r"ya29\.[\w.-]{1,4000}|(?<![\w-])eyJ[\w-]{1,4000}+\.[\w-]{1,4000}+\.[\w-]{1,4000}", 0, REMOVED),
        (r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{35}", 0, REMOVED),
        (r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_|nvapi-|xox[abprs]-)[\w-]{16,500}", 0, REMOVED),
    )
)


def redacted(text: str) -> str:
    """Return the text with everything that looks like a secret replaced."""
    for pattern, shown in _RULES:
        text = pattern.sub(shown if shown == REMOVED else rf"{shown}{REMOVED}", text)
    return text
