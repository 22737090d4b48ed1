"""The registry of environments and shared places, and the cluster objects that a command created and must delete."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from gputax.environments.environment import Environment, LocalEnvironment
from gputax.errors import unknown_name
from gputax.plan.driver import DriverChoice
from gputax.plan.environment import CONTAINER, K8S, SSH, EnvironmentName
from gputax.plan.options import DRA, EnvironmentOptions
from gputax.plan.runtimes import NAME

if TYPE_CHECKING:
    from gputax.kubernetes.pods import RunPods
    from gputax.sharing.place import SharedPlace

Say = Callable[[str], None]
Needs = Literal["this machine", "options", "cluster"]
"""Constructor arguments: only the driver; name and options as well; or the run's pods in a cluster too."""


@dataclass(frozen=True)
class Row:
    """One environment: its name and the class that starts workers there, imported on first use."""

    name: str
    needs: Needs
    implementation: str

    def load(self) -> Any:
        """Return the class."""
        module, _, name = self.implementation.partition(":")
        return getattr(import_module(f"gputax.{module}"), name)


ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        Row("bare", "this machine", "environments.bare:Bare"),
        Row("bare+proxy", "this machine", "environments.bare:BareProxy"),
        Row("container", "options", "environments.container:Container"),
        Row("container:RUNTIME", "options", "environments.container:Container"),
        Row("ssh:HOST", "options", "environments.ssh:Ssh"),
        Row("k8s", "cluster", "environments.kubernetes:Kubernetes"),
        Row("k8s:RUNTIMECLASS", "cluster", "environments.kubernetes:Kubernetes"),
        Row("k8s+proxy", "cluster", "environments.kubernetes:KubernetesProxy"),
        Row("k8s+xen", "cluster", "environments.kubernetes:Kubernetes"),
        Row("k8s+time-slicing", "cluster", "sharing.kubernetes.environment:KubernetesTechnique"),
        Row("k8s+mps", "cluster", "sharing.kubernetes.environment:KubernetesTechnique"),
        Row("k8s+mig", "cluster", "sharing.kubernetes.environment:KubernetesTechnique"),
    )
}
CLAIMED = Row("k8s", "cluster", "sharing.dra.environment:ClaimedRun")
"""What takes the place of `k8s` and the techniques on it with --sharing-flavour dra."""
ENVIRONMENTS = tuple(ROWS)
LOCAL_ENVIRONMENTS = tuple(name for name, row in ROWS.items() if row.needs == "this machine")
SHARED_PLACES = ("bare", "k8s")

SYNONYMS = {
    "kubernetes": "k8s",
    "kube": "k8s",
    "k3s": "k8s",
    "pod": "k8s",
    "gke": "k8s",
    "cluster": "k8s",
    "kubernetes+proxy": "k8s+proxy",
    "docker": "container",
    "podman": "container",
    "runsc": "container:RUNTIME",
    "gvisor": "k8s:RUNTIMECLASS",
    "kata": "k8s:RUNTIMECLASS",
    "local": "bare",
    "host": "bare",
    "baremetal": "bare",
    "bare-metal": "bare",
    "proxy": "bare+proxy",
    "xen": "k8s+xen",
    "mps": "k8s+mps",
    "mig": "k8s+mig",
    "time-slicing": "k8s+time-slicing",
    "ssh": "ssh:HOST",
    "remote": "ssh:HOST",
}

LOCAL_SYNONYMS = {name: meant for name, meant in SYNONYMS.items() if meant in LOCAL_ENVIRONMENTS}


class Places:
    """Context of a command that starts workers, closed when it ends; local environments do not need it."""

    def __init__(self, options: EnvironmentOptions | None = None, say: Say = lambda text: None) -> None:
        self.options = options or EnvironmentOptions()
        self._say = say
        self._pods: dict[tuple[str, str], RunPods] = {}
        self._run_id = ""

    def pods(self, options: EnvironmentOptions) -> RunPods:
        """Return the run's pods in the cluster and namespace given by the options."""
        from gputax.kubernetes.pods import RunPods, new_run_id

        self._run_id = self._run_id or new_run_id()
        key = (options.context, options.namespace)
        if key not in self._pods:
            self._pods[key] = RunPods(options.context, options.namespace, self._say, self._run_id)
        return self._pods[key]

    def files(self) -> dict[str, str]:
        """Return the collected manifests and logs, keyed by file name in the result directory."""
        return {name: text for pods in self._pods.values() for name, text in pods.files().items()}

    def api_calls(self) -> int:
        """Return the number of requests sent to API servers."""
        return sum(pods.cluster.calls for pods in self._pods.values())

    def close(self) -> None:
        """Delete everything that was created; safe to call twice."""
        for pods in self._pods.values():
            pods.close()

    def __enter__(self) -> Places:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def environment_named(
    name: str,
    driver: DriverChoice | None = None,
    places: Places | None = None,
    options: EnvironmentOptions | None = None,
) -> Environment:
    """Return the environment with this name, such as `bare`, set up so that its programs load the given driver.

    Objects that it creates belong to `places` and are deleted when those close. `options` default to those of `places`.
    """
    row = _row(name)
    chosen = options or (places.options if places else EnvironmentOptions())
    environment: Environment
    if chosen.inside:
        from gputax.environments.inside import Inside

        environment = Inside(name, driver)
    elif row.needs == "this machine":
        environment = row.load()(driver)
    elif row.needs == "options":
        environment = row.load()(name, chosen, driver)
    else:
        implementation = CLAIMED.load() if _by_claim(name, chosen, driver) else row.load()
        environment = implementation(name, (places or Places(chosen)).pods(chosen), chosen, driver)
    return environment


def _by_claim(name: str, options: EnvironmentOptions, driver: DriverChoice | None) -> bool:
    """Whether the pod gets its device by a ResourceClaim; without a device it names none."""
    parsed = EnvironmentName.parse(name)
    if options.sharing_flavour != DRA or not (parsed.sharing_layer or not parsed.added):
        return False
    return bool(parsed.sharing_layer) or options.gpu_count(driver.device if driver else "auto") > 0


def local_environment(name: str, driver: DriverChoice | None = None) -> LocalEnvironment:
    """Return a local environment."""
    if name not in LOCAL_ENVIRONMENTS:
        raise unknown_name("environment of this machine", name, LOCAL_ENVIRONMENTS, LOCAL_SYNONYMS)
    environment: LocalEnvironment = ROWS[name].load()(driver)
    return environment


def refuse_unknown(name: str) -> None:
    """Raise UsageError for an unknown environment; `ssh:` accepts any host."""
    _row(name)


def _row(name: str) -> Row:
    parsed = EnvironmentName.parse(name)
    written = name
    if (parsed.host or parsed.runtime) and not parsed.added:
        written = {SSH: "ssh:HOST", CONTAINER: "container:RUNTIME", K8S: "k8s:RUNTIMECLASS"}.get(parsed.place, name)
    row = ROWS.get(written)
    if row is None or (parsed.runtime and not NAME.fullmatch(parsed.runtime)):
        raise unknown_name("environment", name, ENVIRONMENTS, SYNONYMS)
    return row


def shared_place(name: str, options: EnvironmentOptions, say: Say, *, proxy_memory_mb: int = 0) -> SharedPlace:
    """Return the place where tenants share a device; `proxy_memory_mb` limits each tenant of a GPU proxy (0: none)."""
    match name:
        case "bare":
            from gputax.sharing.bare import BareShared

            return BareShared(say, proxy_memory_mb)
        case "k8s":
            from gputax.sharing.kubernetes.place import KubernetesShared

            _refuse_silent_cluster(options)
            if options.sharing_flavour == DRA:
                from gputax.sharing.dra.place import ClaimedShared

                return ClaimedShared(options, say)
            return KubernetesShared(options, say)
    raise unknown_name("environment to share a device in", name, SHARED_PLACES)


def _refuse_silent_cluster(options: EnvironmentOptions) -> None:
    """Fail early if the cluster does not answer: otherwise every technique would fail for the same reason."""
    from gputax.kubernetes.client import Cluster, ForbiddenError

    cluster = Cluster(options.context, options.namespace)
    try:
        with contextlib.suppress(ForbiddenError):  # a 403 is an answer
            cluster.version()
    finally:
        cluster.close()
