"""What a user of the environment `k8s` must be allowed to do, verb by verb, and the objects that allow it."""

from __future__ import annotations

from dataclasses import dataclass

from gputax.kubernetes.objects import APP, Manifest
from gputax.plan.options import NAMESPACE

RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Permission:
    """One verb on one resource of the namespace, and what it is needed for."""

    verb: str
    resource: str
    why: str
    group: str = ""


# Exactly what the environment k8s does; the Role in kubernetes/access is generated from this list.
PERMISSIONS: tuple[Permission, ...] = (
    Permission("create", "pods", "start the pod of a worker"),
    Permission("list", "pods", "find pods that a killed run left, and a proxy that serves"),
    Permission("watch", "pods", "see it become ready, fail or die, and read its uid, node and limits for the evidence"),
    Permission("delete", "pods", "remove it afterwards"),
    Permission("create", "pods/exec", "start the worker in it and hold its pipes"),
    # Since Kubernetes 1.30 exec over WebSockets is a GET; 1.35 asks for `create` as well.
    Permission("get", "pods/exec", "the same, over WebSockets"),
    Permission("get", "pods/log", "bring its log home"),
    Permission("list", "events", "give the scheduler's and the kubelet's own words when it does not start"),
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
    """Return the account that a pipeline may use gputax with."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(namespace)}


def role(namespace: str = NAMESPACE) -> Manifest:
    """Return the least role."""
    return {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": _metadata(namespace), "rules": rules()}


def role_binding(namespace: str = NAMESPACE) -> Manifest:
    """Return the binding of the role to the account."""
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
