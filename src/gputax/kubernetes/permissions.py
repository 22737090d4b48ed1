"""The permissions that the environment `k8s` needs, verb by verb, and the RBAC objects that grant them."""

from __future__ import annotations

from dataclasses import dataclass

from gputax.kubernetes.objects import APP, Manifest
from gputax.plan.options import NAMESPACE

RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Permission:
    """One verb on one resource in the namespace, and its purpose."""

    verb: str
    resource: str
    why: str
    group: str = ""


# Exactly the requests of the environment k8s; the Role in kubernetes/access is generated from this list.
PERMISSIONS: tuple[Permission, ...] = (
    Permission("create", "pods", "start the pod of a worker"),
    Permission("list", "pods", "find pods left by a killed run"),
    Permission("watch", "pods", "see it become ready or fail, and read its uid, node and limits as evidence"),
    Permission("delete", "pods", "delete it afterwards"),
    Permission("create", "pods/exec", "start the worker in it and hold its pipes"),
    # Since Kubernetes 1.30 exec over WebSockets is a GET; 1.35 requires `create` as well.
    Permission("get", "pods/exec", "the same, over WebSockets"),
    Permission("get", "pods/log", "collect its log"),
    Permission("list", "events", "report the scheduler's or kubelet's reason when it does not start"),
)


def rules() -> list[Manifest]:
    """Return the permissions as the rules of a Role: one per resource, its verbs in order."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for each in PERMISSIONS:
        verbs.setdefault((each.group, each.resource), []).append(each.verb)
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": allowed}
        for (group, resource), allowed in verbs.items()
    ]


def service_account(namespace: str = NAMESPACE) -> Manifest:
    """Return the service account, for use in a pipeline."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(namespace)}


def role(namespace: str = NAMESPACE) -> Manifest:
    """Return the role with the required permissions."""
    return {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": _metadata(namespace), "rules": rules()}


def role_binding(namespace: str = NAMESPACE) -> Manifest:
    """Return the binding of the role to the service account."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": _metadata(namespace),
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": APP},
        "subjects": [{"kind": "ServiceAccount", "name": APP, "namespace": namespace}],
    }


def _metadata(namespace: str) -> Manifest:
    return {
        "name": APP,
        "namespace": namespace,
        "labels": {"app.kubernetes.io/name": APP, "app.kubernetes.io/managed-by": APP},
    }
