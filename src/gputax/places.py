"""Every environment by its name, and what a command made there and must remove; the registry is literal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gputax.environments.environment import Environment, LocalEnvironment
from gputax.errors import unknown_name
from gputax.plan.driver import DriverChoice
from gputax.plan.options import EnvironmentOptions

if TYPE_CHECKING:
    from gputax.kubernetes.pods import RunPods

Say = Callable[[str], None]
LOCAL_ENVIRONMENTS = ("bare", "bare+proxy")
ENVIRONMENTS = (
    *LOCAL_ENVIRONMENTS, "container", "ssh:HOST", "k8s", "k8s+proxy", "k8s+xen",
    "k8s+time-slicing", "k8s+mps", "k8s+mig",
)  # fmt: skip


class Places:
    """Opened by a command that starts workers, closed when it ends; environments of this machine need nothing of it."""

    def __init__(self, options: EnvironmentOptions | None = None, say: Say = lambda text: None) -> None:
        self.options = options or EnvironmentOptions()
        self._say = say
        self._pods: dict[tuple[str, str], RunPods] = {}
        self._run_id = ""

    def pods(self, options: EnvironmentOptions) -> RunPods:
        """Return the run's pods in the cluster and namespace that the options name."""
        from gputax.kubernetes.pods import RunPods, new_run_id

        self._run_id = self._run_id or new_run_id()
        key = (options.context, options.namespace)
        if key not in self._pods:
            self._pods[key] = RunPods(options.context, options.namespace, self._say, self._run_id)
        return self._pods[key]

    def files(self) -> dict[str, str]:
        """Return the manifests and logs that came home, by their names in a result directory."""
        return {name: text for pods in self._pods.values() for name, text in pods.files().items()}

    def api_calls(self) -> int:
        """Return how many requests went to API servers."""
        return sum(pods.cluster.calls for pods in self._pods.values())

    def close(self) -> None:
        """Remove everything that was made; may be called twice."""
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
    """Return the environment that a name such as `bare` stands for, with the driver that its programs shall find.

    What it makes is in `places`, for whoever opened them to remove; `options` are the places' own where none are given.
    """
    refuse_unknown(name)
    chosen = options or (places.options if places else EnvironmentOptions())
    if chosen.inside:
        from gputax.environments.inside import Inside

        return Inside(name, driver)
    match name.partition(":")[0]:
        case "container":
            from gputax.environments.container import Container

            return Container(chosen, driver)
        case "ssh":
            from gputax.environments.ssh import Ssh

            return Ssh(name, chosen, driver)
        case "k8s" | "k8s+xen":
            from gputax.environments.kubernetes import Kubernetes

            return Kubernetes(name, (places or Places(chosen)).pods(chosen), chosen, driver)
        case "k8s+proxy":
            from gputax.environments.proxy.kubernetes import KubernetesProxy

            return KubernetesProxy(name, (places or Places(chosen)).pods(chosen), chosen, driver)
        case "k8s+time-slicing" | "k8s+mps" | "k8s+mig":
            from gputax.sharing.kubernetes.environment import KubernetesTechnique

            return KubernetesTechnique(name, (places or Places(chosen)).pods(chosen), chosen, driver)
    return local_environment(name, driver)


def local_environment(name: str, driver: DriverChoice | None = None) -> LocalEnvironment:
    """Return an environment of this machine."""
    match name:
        case "bare":
            from gputax.environments.bare import Bare

            return Bare(driver)
        case "bare+proxy":
            from gputax.environments.proxy.bare import BareProxy

            return BareProxy(driver)
    raise unknown_name("environment of this machine", name, LOCAL_ENVIRONMENTS)


def refuse_unknown(name: str) -> None:
    """Refuse a name that no environment has; `ssh:` takes any host."""
    if name not in ENVIRONMENTS and not (name.startswith("ssh:") and len(name) > len("ssh:")):
        raise unknown_name("environment", name, ENVIRONMENTS)
