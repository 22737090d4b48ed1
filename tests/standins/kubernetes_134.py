"""What Kubernetes 1.34 serves and takes, as far as it differs from later versions: for the stand-in API server.

The lists are the differences between the models of 1.34 and those of 1.37 (lightkube-models 1.34.0.8 and 1.37.0.8).
"""

from __future__ import annotations

import re
from typing import Any

from tests.standins.kube_api import KubeApi

VERSION = "v1.34.8"
SERVED = (
    "v1", "apps/v1", "batch/v1", "rbac.authorization.k8s.io/v1", "node.k8s.io/v1", "authorization.k8s.io/v1",
    "resource.k8s.io/v1",
)  # fmt: skip
"""The versions of those groups that the client may use; 1.34 is the first with `resource.k8s.io/v1`."""
_VOLUME = r"spec\.volumes\[\]\.(emptyDir\.mode|(configMap|secret|projected|downwardAPI)\.(defaultUser|items\[\]\.user))"
NEWER = {
    "Pod": re.compile(
        rf"spec\.(evictionResponders|schedulingGroup)|{_VOLUME}|spec\.(init)?[cC]ontainers\[\]\.("
        r"volumeMounts\[\]\.bindMountOptions|\w+Probe\.(grpc\.mode|httpGet\.protocol))"
    ),
    "Job": re.compile(r"spec\.scheduling"),
    "ResourceClaim": re.compile(r"spec\.devices\.requests\[\]\.(exactly|firstAvailable\[\])\.derivedAttributes"),
}
"""Fields of objects that a client writes, which came after 1.34: a strict server refuses them."""
NOT_YET_IN_STATUS = ("allocatedResources", "resources", "nodeAllocatableResourceClaimStatuses", "volumeHealth")
"""Of a pod's own status; its containers' status has had `resources` since 1.33."""


def serve_134(api: KubeApi) -> None:
    """Let the server be 1.34: its version, its groups, its fields."""
    api.version, api.refuses, api.serves = VERSION, unknown_field, SERVED


def unknown_field(manifest: dict[str, Any]) -> str:
    """Return the server's words on the first field that it does not know; empty if it knows all."""
    newer = NEWER.get(str(manifest.get("kind")))
    for path in paths(manifest):
        if newer is not None and newer.match(path):
            return f'strict decoding error: unknown field "{path}"'
    return ""


def paths(value: Any, prefix: str = "") -> list[str]:
    """Return the path of every field of an object, with `[]` for each list."""
    if isinstance(value, dict):
        found = []
        for key, each in value.items():
            path = f"{prefix}.{key}" if prefix else str(key)
            found += [path, *paths(each, path)]
        return found
    if isinstance(value, list):
        return [path for each in value for path in paths(each, f"{prefix}[]")]
    return []
