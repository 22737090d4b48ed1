"""What each kustomization of kubernetes/ must become, from the functions that make it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gputax.kubernetes import manifests as kustomize
from gputax.kubernetes.objects import Manifest, namespace
from gputax.sharing.dra.manifests import access_dra
from gputax.sharing.kubernetes import manifests as sharing
from gputax.sharing.kubernetes.manifests import access_sharing


def sharing_overlay(client: sharing.Client) -> list[Manifest]:
    """Return what an overlay of kubernetes/sharing becomes."""
    return [
        namespace(privileged=client.host_ipc),
        *kustomize.access()[1:],
        sharing.client_deployment(client),
    ]


PLACES: dict[str, Callable[[], list[Manifest]]] = {
    "access": kustomize.access,
    "access-sharing": access_sharing,
    "access-dra": access_dra,
    "base": kustomize.base,
    "overlays/baseline": kustomize.baseline,
    "overlays/gpu-proxy": kustomize.gpu_proxy,
    "overlays/xen": kustomize.xen,
    "proxy/base": kustomize.proxy_base,
    "proxy/gpu": partial(kustomize.proxy, "cuda"),
    "proxy/software": partial(kustomize.proxy, "software"),
    "sharing/base": lambda: [*kustomize.access(), sharing.client_base()],
    **{f"sharing/overlays/{name}": partial(sharing_overlay, client) for name, client in sharing.CLIENTS.items()},
}
