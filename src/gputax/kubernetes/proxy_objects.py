"""The Kubernetes objects of the layer `proxy`: the GPU proxy of a node, and the variables of its tenants."""

from __future__ import annotations

from dataclasses import replace

from gputax.kubernetes.objects import (
    APP,
    LIBVGPU_DIRECTORY,
    NATIVE,
    PROXY_SOCKET,
    Manifest,
    PodPlan,
    Size,
    gpu_toleration,
    labels,
    pod_spec,
)
from gputax.plan.options import IMAGE, NAMESPACE

PROXY_SIZE = Size(cpus=1, memory="1Gi", cpu_limited=False)
STATUS = ("gputax", "proxy", "status", "--json", "--socket", PROXY_SOCKET)


def proxy_variables() -> dict[str, str]:
    """Return the variables with which a program loads libvgpu as its driver, and libvgpu finds the proxy."""
    return {"LD_LIBRARY_PATH": LIBVGPU_DIRECTORY, "GPUTAX_PROXY_SOCKET": PROXY_SOCKET}


def proxy_command(device: str) -> list[str]:
    """Return the command of a proxy's container; pods with any user id may connect to its socket."""
    return [
        "gputax", "proxy", "start", "--foreground", "--device", device, "--socket", PROXY_SOCKET, "--mode", "0666",
    ]  # fmt: skip


def proxy_probe() -> Manifest:
    """Return the startup probe: it runs until the proxy is ready and never again, so it costs nothing later."""
    return {
        "exec": {"command": list(STATUS)},
        "periodSeconds": 1,
        "timeoutSeconds": 10,
        "failureThreshold": 60,
    }


def proxy_plan(image: str = IMAGE, device: str = "cuda", gpus: int = 1, namespace: str = NAMESPACE) -> PodPlan:
    """Return the pod of a proxy: only it has the device, and it is reachable only through the socket."""
    return PodPlan(
        "",
        "",
        image,
        replace(PROXY_SIZE, gpus=gpus if device == "cuda" else 0),
        namespace,
        role="proxy",
        command=tuple(proxy_command(device)),
        variables={"GPUTAX_NATIVE": NATIVE},
        serves_proxy=True,
        startup_probe=proxy_probe(),
    )


def proxy_daemon_set(plan: PodPlan, run_id: str) -> Manifest:
    """Return the DaemonSet that runs one proxy on every node with a GPU."""
    spec = {**pod_spec(plan), "restartPolicy": "Always"}
    if plan.size.gpus:
        spec["tolerations"] = [gpu_toleration()]
    chosen = {"app.kubernetes.io/name": APP, "app.kubernetes.io/component": plan.role}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "gputax-proxy", "namespace": plan.namespace, "labels": labels(run_id, plan.role)},
        "spec": {
            "selector": {"matchLabels": chosen},
            "template": {"metadata": {"labels": labels(run_id, plan.role)}, "spec": spec},
        },
    }
