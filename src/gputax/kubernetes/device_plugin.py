"""The DaemonSet of NVIDIA's device plugin, at a pinned version: it makes a node advertise `nvidia.com/gpu`."""

from __future__ import annotations

from gputax.kubernetes.objects import Manifest

VERSION = "v0.20.0"
IMAGE = f"nvcr.io/nvidia/k8s-device-plugin:{VERSION}"
NAMESPACE = "kube-system"
# A name of our own, so that an existing plugin is never changed.
NAME = "gputax-nvidia-device-plugin"
# The kubelet looks for plugin sockets only here: the only host path that the plugin needs.
SOCKETS = "/var/lib/kubelet/device-plugins"


def daemon_set() -> Manifest:
    """Return the DaemonSet; on a node without a driver it waits without failing (FAIL_ON_INIT_ERROR=false)."""
    selector = {"name": NAME}
    container = {
        "name": "nvidia-device-plugin-ctr",
        "image": IMAGE,
        "env": [{"name": "FAIL_ON_INIT_ERROR", "value": "false"}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "sockets", "mountPath": SOCKETS}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/managed-by": "gputax", **selector},
        },
        "spec": {
            "selector": {"matchLabels": selector},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": selector},
                "spec": {
                    "priorityClassName": "system-node-critical",
                    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                    "containers": [container],
                    "volumes": [{"name": "sockets", "hostPath": {"path": SOCKETS, "type": "Directory"}}],
                },
            },
        },
    }
