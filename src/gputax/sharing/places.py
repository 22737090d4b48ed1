"""Find the place whose device is shared; the registry is literal."""

from __future__ import annotations

import contextlib

from gputax.errors import unknown_name
from gputax.plan.options import EnvironmentOptions
from gputax.sharing.place import Say, SharedPlace

PLACES = ("bare", "k8s")


def shared_place(name: str, options: EnvironmentOptions, say: Say, *, proxy_memory_mb: int = 0) -> SharedPlace:
    """Return the place; `proxy_memory_mb` is what each tenant may allocate behind a GPU proxy of our own (0: all)."""
    match name:
        case "bare":
            from gputax.sharing.bare.place import BareShared

            return BareShared(say, proxy_memory_mb)
        case "k8s":
            from gputax.sharing.kubernetes.place import KubernetesShared

            _refuse_silent(options)
            return KubernetesShared(options, say)
    raise unknown_name("environment to share a device in", name, PLACES)


def _refuse_silent(options: EnvironmentOptions) -> None:
    """Raise at once where no cluster answers: that is no lack of a technique, and the same for all of them."""
    from gputax.kubernetes.client import Cluster, ForbiddenError

    cluster = Cluster(options.context, options.namespace)
    try:
        with contextlib.suppress(ForbiddenError):  # who may not ask for the version has been answered
            cluster.version()
    finally:
        cluster.close()
