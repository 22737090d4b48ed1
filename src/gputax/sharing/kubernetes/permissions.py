"""The permissions that `gputax share --env k8s` needs in addition to a run; nodes need a separate ClusterRole."""

from __future__ import annotations

from gputax.kubernetes.objects import APP, Manifest
from gputax.kubernetes.permissions import RBAC, Permission
from gputax.sharing.kubernetes.plugin_config import DEFAULT

NODES_ROLE = "gputax-sharing"
FILES_ROLE = "gputax-plugin-files"
# The names of the plugin's ConfigMap in NVIDIA's guide and in `make install`.
FILES_NAMES = (DEFAULT[1], "gputax-sharing")

NODE_PERMISSIONS: tuple[Permission, ...] = (
    Permission("list", "nodes", "find the node with the GPU"),
    Permission("get", "nodes", "read the labels that are restored afterwards"),
    Permission("watch", "nodes", "see the node offer the technique"),
    Permission("patch", "nodes", "label the node, and restore its labels"),
    Permission("list", "pods", "see what else runs on the node and uses its GPU"),
    Permission("list", "daemonsets", "find the ConfigMap that the device plugin reads", group="apps"),
)
FILES_PERMISSIONS: tuple[Permission, ...] = (
    Permission("get", "configmaps", "see which files the device plugin has"),
    Permission("patch", "configmaps", "add the techniques' files, and remove them again"),
    Permission("delete", "configmaps", "delete it if it was created for them"),
)


def access_sharing() -> list[Manifest]:
    """Return the opt-in roles, and the binding of the first to the service account of kubernetes/access."""
    nodes = [_rule(each) for each in NODE_PERMISSIONS]
    files = [{**_rule(each), "resourceNames": list(FILES_NAMES)} for each in FILES_PERMISSIONS]
    # RBAC cannot restrict `create` by name.
    files.append(_rule(Permission("create", "configmaps", "create it if there is none")))
    binding: Manifest = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": _metadata(NODES_ROLE),
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": NODES_ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": APP, "namespace": APP}],
    }
    return [_role(NODES_ROLE, _joined(nodes)), _role(FILES_ROLE, _joined(files)), binding]


def _rule(permission: Permission) -> Manifest:
    return {"apiGroups": [permission.group], "resources": [permission.resource], "verbs": [permission.verb]}


def _joined(rules: list[Manifest]) -> list[Manifest]:
    """Merge the rules of each resource into one."""
    joined: list[Manifest] = []
    for rule in rules:
        same = [each for each in joined if {**each, "verbs": []} == {**rule, "verbs": []}]
        if same:
            same[0]["verbs"] = [*same[0]["verbs"], *rule["verbs"]]
        else:
            joined.append(rule)
    return joined


def _role(name: str, rules: list[Manifest]) -> Manifest:
    return {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": _metadata(name), "rules": rules}


def _metadata(name: str) -> Manifest:
    return {"name": name, "labels": {"app.kubernetes.io/name": APP, "app.kubernetes.io/managed-by": APP}}
