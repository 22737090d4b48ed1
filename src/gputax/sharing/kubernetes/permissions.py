"""What `gputax share --env k8s` must be allowed beyond a run: nodes are the cluster's, so it is a role of its own."""

from __future__ import annotations

from gputax.kubernetes.objects import APP, Manifest
from gputax.kubernetes.permissions import RBAC, Permission
from gputax.sharing.kubernetes.plugin_config import DEFAULT

NODES_ROLE = "gputax-sharing"
FILES_ROLE = "gputax-plugin-files"
# The names under which NVIDIA's guide and `make install` keep the plugin's files.
FILES_NAMES = (DEFAULT[1], "gputax-sharing")

NODE_PERMISSIONS: tuple[Permission, ...] = (
    Permission("list", "nodes", "find the node with the GPU"),
    Permission("get", "nodes", "read the labels that are to be put back"),
    Permission("watch", "nodes", "see the node offer the technique"),
    Permission("patch", "nodes", "label the node, and put its labels back"),
    Permission("list", "pods", "see what else runs on the node, and who else holds its GPU"),
    Permission("list", "daemonsets", "find the ConfigMap that the device plugin reads", group="apps"),
)
FILES_PERMISSIONS: tuple[Permission, ...] = (
    Permission("get", "configmaps", "see which files the device plugin has"),
    Permission("patch", "configmaps", "add the techniques' files, and take them out again"),
    Permission("delete", "configmaps", "remove it where it was made for them"),
)


def access_sharing() -> list[Manifest]:
    """Return the opt-in roles, and the binding of the first to the account of kubernetes/access."""
    nodes = [_rule(each) for each in NODE_PERMISSIONS]
    files = [{**_rule(each), "resourceNames": list(FILES_NAMES)} for each in FILES_PERMISSIONS]
    # A name cannot be asked of an object that does not exist yet.
    files.append(_rule(Permission("create", "configmaps", "make it where there is none")))
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
    """Return the rules with those of one resource in one."""
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
