"""How a place is to be set up: image, namespace, sizes; one object for all, and each environment takes its part."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from gputax import __version__
from gputax.errors import UsageError, unknown_name

NAMESPACE = "gputax"
IMAGE = f"gputax:{__version__}"
PULL_POLICIES = ("IfNotPresent", "Always", "Never")
SHARING_FLAVOURS = ("auto", "device-plugin", "operator", "gke", "nos")
_NUMBERS = ("cpus", "gpus", "ready_timeout_s")


@dataclass(frozen=True)
class EnvironmentOptions:
    """What the user said of a place; the defaults fit an image that was built from this checkout."""

    inside: bool = False
    """k8s: this process runs in that place already, as a Job's does; nothing is made."""
    image: str = IMAGE
    """container, k8s: the image that holds gputax of this version."""
    pull_policy: str = "IfNotPresent"
    namespace: str = NAMESPACE
    context: str = ""
    """k8s: the kubeconfig's context; empty for its current one."""
    node: str = ""
    """k8s: the node by name; empty leaves it to the scheduler."""
    runtime_class: str = ""
    """k8s: the RuntimeClass; empty for the cluster's default."""
    pull_secret: str = ""
    """k8s: the name of an existing secret of the type dockerconfigjson."""
    cpus: int = 0
    """container, k8s: whole CPUs; 0: as many as a bare worker of this machine would use, so that threads are equal."""
    memory: str = "4Gi"
    gpus: int = -1
    """container, k8s: how many GPUs; -1: one where the device is cuda, else none."""
    remote_command: str = ""
    """ssh: what starts the worker there; empty for `python3 -m gputax.worker`."""
    ready_timeout_s: int = 300
    """k8s: how long a pod may take to be ready; a node that is still being made takes minutes."""
    sharing_flavour: str = "auto"
    """k8s, sharing: who divides the GPU among pods; `auto` tells it from the node's labels."""
    plugin_config: str = ""
    """k8s, sharing: NAMESPACE/NAME of the ConfigMap that the device plugin reads; empty: the one that it mounts."""
    mig_profile: str = ""
    """k8s, sharing: the MIG profile of a tenant, such as 1g.10gb; empty: the largest that gives enough slices."""

    def changed(self, words: Iterable[str]) -> EnvironmentOptions:
        """Return the options with words such as `image=gputax:next` taken over them."""
        known = {each.name.replace("_", "-"): each.name for each in dataclasses.fields(self) if each.name != "inside"}
        changes: dict[str, str | int] = {}
        for word in words:
            key, equals, value = word.partition("=")
            if key not in known:
                raise unknown_name("option of an environment", key, known)
            if not equals:
                raise UsageError(f"{word!r} gives no value", next_step=f"e.g. {key}=VALUE")
            name = known[key]
            if name in _NUMBERS and not value.isdigit():
                raise UsageError(f"{key}={value!r} is no number")
            if name == "sharing_flavour" and value not in SHARING_FLAVOURS:
                raise unknown_name("sharing flavour", value, SHARING_FLAVOURS)
            changes[name] = int(value) if name in _NUMBERS else value
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    def gpu_count(self, device: str) -> int:
        """Return how many GPUs the place is to have for this device."""
        return self.gpus if self.gpus >= 0 else int(device == "cuda")
