"""Writes the YAML files of kubernetes/ for ResourceClaims: python -m gputax.sharing.dra.manifests kubernetes."""

from __future__ import annotations

import sys
from pathlib import Path

from gputax.kubernetes.claims import GROUP, PERMISSIONS
from gputax.kubernetes.manifests import ManifestFile, write
from gputax.kubernetes.objects import APP, Manifest
from gputax.kubernetes.permissions import RBAC
from gputax.plan.options import NAMESPACE

ROLE = "gputax-dra"


def access_dra(namespace: str = NAMESPACE) -> list[Manifest]:
    """Return the role with all that claims need, and its binding; both are of the namespace, none of the cluster."""
    metadata = {
        "name": ROLE,
        "namespace": namespace,
        "labels": {"app.kubernetes.io/name": APP, "app.kubernetes.io/managed-by": APP},
    }
    verbs = [each.verb for each in PERMISSIONS]
    return [
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "Role",
            "metadata": metadata,
            "rules": [{"apiGroups": [GROUP], "resources": ["resourceclaims"], "verbs": verbs}],
        },
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": ROLE},
            "subjects": [{"kind": "ServiceAccount", "name": APP, "namespace": namespace}],
        },
    ]


def files() -> list[ManifestFile]:
    """Return the generated files of kubernetes/access-dra."""
    return [ManifestFile("access-dra/access.yaml", ACCESS_DRA, access_dra())]


ACCESS_DRA = """\
What `--sharing-flavour dra` needs beyond kubernetes/access: claims of its own namespace, and nothing of the cluster.
To give it to a user:  kubectl -n gputax create rolebinding NAME --role=gputax-dra --user=USER
"""

if __name__ == "__main__":
    write(files(), Path(sys.argv[1]))
