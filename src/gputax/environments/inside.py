"""`--inside`: this process is in a pod already, as a Job's is; the worker is its child, the evidence the pod's."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

from gputax.environments.bare import Bare
from gputax.environments.described import Described
from gputax.environments.evidence import Evidence
from gputax.environments.kubernetes import cgroup_reasons, device_ids, xen_reasons
from gputax.environments.process import ChildProcess
from gputax.environments.proxy.bare import BareProxy
from gputax.environments.proxy.server import SOCKET_VARIABLE
from gputax.errors import PreflightError, UsageError
from gputax.plan.driver import DriverChoice
from gputax.plan.environment import K8S, PROXY, XEN, EnvironmentName


class Inside:
    """A pod seen from within: what the kubelet told it in variables is held against what the worker sees."""

    def __init__(self, name: str, driver: DriverChoice | None = None, environ: Mapping[str, str] = os.environ) -> None:
        self.name = name
        parsed = EnvironmentName.parse(name)
        self._layers = parsed.layers
        self._environ = environ
        if parsed.place != K8S:
            raise UsageError(f"--inside is for a pod; {name} is none", next_step="--env k8s --inside")
        if parsed.sharing_layer:
            raise UsageError(
                f"a pod cannot prove from within that its node offers {parsed.sharing_layer}",
                where="--inside",
                next_step=f"without --inside, from where the cluster can be asked: gputax run --env {name}",
            )
        self._local = _Tenant(driver) if PROXY in self._layers else Bare(driver)

    def start(self) -> ChildProcess:
        """Start the worker as a child; behind the proxy only if the node's proxy is named."""
        if PROXY in self._layers and not self._environ.get(SOCKET_VARIABLE):
            raise PreflightError(
                "this pod knows no GPU proxy of its node",
                where=SOCKET_VARIABLE,
                next_step="kubectl apply -k kubernetes/overlays/gpu-proxy sets it up",
            )
        return self._local.start()

    def evidence(self, described: Described) -> Evidence:
        """Tell that the worker was in the pod that the variables name, and what its layers prove."""
        local = self._local.evidence(described)
        reasons = [*local.reasons, *inside_reasons(self._environ, described)]
        if XEN in self._layers:
            reasons += xen_reasons(described)
        facts = {
            "pod": self._environ.get("GPUTAX_POD"),
            "pod_uid": self._environ.get("GPUTAX_POD_UID"),
            "namespace": self._environ.get("GPUTAX_NAMESPACE"),
            "node": self._environ.get("GPUTAX_NODE"),
            "cpu_allowance": described.cpu_allowance,
            "memory_limit_mb": described.host.get("memory_limit_mb"),
            "hypervisor_type": described.host.get("hypervisor_type"),
            "device_ids": device_ids(described),
        }
        return local.below(self._layers[-1], reasons, facts)


def inside_reasons(environ: Mapping[str, str], described: Described) -> list[str]:
    """Say what speaks against this being the pod that the variables name, with limits of its own."""
    name, uid = environ.get("GPUTAX_POD"), environ.get("GPUTAX_POD_UID")
    if not uid:
        return ["the variable GPUTAX_POD_UID is not set: the manifests in kubernetes/ set it"]
    reasons = cgroup_reasons(uid, described)
    if described.hostname != name:
        reasons.append(f"the worker's host is {described.hostname!r}, the pod is {name!r}")
    if described.container_hints.get("own_pid_namespace") is False:
        reasons.append("the worker sees the node's processes: it is in no container")
    if described.quota_cpus is None and len(described.affinity) == described.host.get("cores_online"):
        reasons.append("no CPU limit is in force: the pod is not Guaranteed")
    return reasons


class _Tenant(BareProxy):
    """`bare+proxy` whose proxy is in another pod, where processes have other numbers."""

    def evidence(self, described: Described) -> Evidence:
        self._intended = dataclasses.replace(self._intended, same_pid_namespace=False)
        return super().evidence(described)
