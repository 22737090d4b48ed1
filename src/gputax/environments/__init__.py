"""Ways to start a worker somewhere and hold its two pipes; the registry is literal."""

from __future__ import annotations

from gputax.environments.environment import Environment, LocalEnvironment
from gputax.environments.places import Places
from gputax.errors import unknown_name
from gputax.plan.driver_choice import DriverChoice
from gputax.plan.environment_options import EnvironmentOptions

__all__ = ["ENVIRONMENTS", "LOCAL_ENVIRONMENTS", "Places", "environment_named", "local_environment", "refuse_unknown"]

LOCAL_ENVIRONMENTS = ("bare", "bare+proxy")
ENVIRONMENTS = (
    *LOCAL_ENVIRONMENTS, "container", "ssh:HOST", "k8s", "k8s+proxy", "k8s+xen",
    "k8s+time-slicing", "k8s+mps", "k8s+mig",
)  # fmt: skip


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
            from gputax.environments.kubernetes_proxy import KubernetesProxy

            return KubernetesProxy(name, (places or Places(chosen)).pods(chosen), chosen, driver)
        case "k8s+time-slicing" | "k8s+mps" | "k8s+mig":
            from gputax.environments.kubernetes_technique import KubernetesTechnique

            return KubernetesTechnique(name, (places or Places(chosen)).pods(chosen), chosen, driver)
    return local_environment(name, driver)


def local_environment(name: str, driver: DriverChoice | None = None) -> LocalEnvironment:
    """Return an environment of this machine."""
    match name:
        case "bare":
            from gputax.environments.bare import Bare

            return Bare(driver)
        case "bare+proxy":
            from gputax.environments.proxy import BareProxy

            return BareProxy(driver)
    raise unknown_name("environment of this machine", name, LOCAL_ENVIRONMENTS)


def refuse_unknown(name: str) -> None:
    """Refuse a name that no environment has; `ssh:` takes any host."""
    if name not in ENVIRONMENTS and not (name.startswith("ssh:") and len(name) > len("ssh:")):
        raise unknown_name("environment", name, ENVIRONMENTS)
