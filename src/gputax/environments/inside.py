"""`--inside`: this process already runs in a pod, such as a Job's; it starts the worker as a child process."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gputax.environments.bare import Bare, BareProxy
from gputax.environments.environment import Described, Evidence
from gputax.environments.kubernetes import cgroup_reasons, device_ids, xen_facts, xen_reasons
from gputax.environments.process import ChildProcess
from gputax.environments.proxy import SOCKET_VARIABLE
from gputax.environments.runtime import SeenRuntime, hides_limits, kernel_reasons
from gputax.errors import PreflightError, UsageError
from gputax.plan.driver import DriverChoice
from gputax.plan.environment import K8S, PROXY, XEN, EnvironmentName
from gputax.worker.probes.host import sandbox
from gputax.worker.probes.limits import TOLD_VARIABLE, cpu_allowance


class Inside:
    """The pod seen from inside: compares the variables set by the kubelet with what the worker sees."""

    def __init__(self, name: str, driver: DriverChoice | None = None, environ: Mapping[str, str] = os.environ) -> None:
        self.name = name
        parsed = EnvironmentName.parse(name)
        self._layers = parsed.layers
        self._runtime = parsed.runtime
        self._environ = environ
        if parsed.place != K8S:
            raise UsageError(f"--inside requires a pod, but {name} is not one", next_step="--env k8s --inside")
        if parsed.sharing_layer:
            raise UsageError(
                f"a pod cannot prove from inside that its node offers {parsed.sharing_layer}",
                where="--inside",
                next_step=f"run it without --inside, with access to the cluster: gputax run --env {name}",
            )
        # The proxy is in another pod, where processes have different ids.
        self._local = BareProxy(driver, same_pid_namespace=False) if PROXY in self._layers else Bare(driver)

    def start(self) -> ChildProcess:
        """Start the worker as a child process; `+proxy` requires the variable that names the node's proxy."""
        if PROXY in self._layers and not self._environ.get(SOCKET_VARIABLE):
            raise PreflightError(
                "this pod does not know its node's GPU proxy: the variable is not set",
                where=SOCKET_VARIABLE,
                next_step="ask for gputax.dev/vgpu: 1 in the pod's limits, as kubernetes/overlays/gpu-proxy does",
            )
        allowance = cpu_allowance(environ=self._environ)
        refuse_hidden_limit(sandbox(), allowance.quota_cpus, allowance.told_cpus)
        return self._local.start()

    def evidence(self, described: Described) -> Evidence:
        """Show that the worker ran in the pod given by the variables, with the evidence for its layers."""
        local = self._local.evidence(described)
        reasons = [*local.reasons, *inside_reasons(self._environ, described)]
        if XEN in self._layers:
            reasons += xen_reasons(described)
        runtime = SeenRuntime(self._runtime)
        if self._runtime:
            reasons += kernel_reasons(runtime, described)
        facts = {
            **(runtime.facts(described) if self._runtime else {}),
            "pod": self._environ.get("GPUTAX_POD"),
            "pod_uid": self._environ.get("GPUTAX_POD_UID"),
            "namespace": self._environ.get("GPUTAX_NAMESPACE"),
            "node": self._environ.get("GPUTAX_NODE"),
            "cpu_allowance": described.cpu_allowance,
            "memory_limit_mb": described.host.get("memory_limit_mb"),
            "hypervisor_type": described.host.get("hypervisor_type"),
            **xen_facts(described),
            "device_ids": device_ids(described),
        }
        return local.below(self._layers[-1], reasons, facts)


def inside_reasons(environ: Mapping[str, str], described: Described) -> list[str]:
    """List why this does not seem to be the pod given by the variables, with its own limits."""
    name, uid = environ.get("GPUTAX_POD"), environ.get("GPUTAX_POD_UID")
    if not uid:
        return ["the variable GPUTAX_POD_UID is not set: the manifests in kubernetes/ set it"]
    reasons = cgroup_reasons(uid, described)
    if described.hostname != name:
        reasons.append(f"the worker's host is {described.hostname!r}, the pod is {name!r}")
    if described.container_hints.get("own_pid_namespace") is False:
        reasons.append("the worker sees the node's processes: it is not in a container")
    if hides_limits(described):
        return reasons
    if described.quota_cpus is None and len(described.affinity) == described.host.get("cores_online"):
        reasons.append("no CPU limit is enforced: the pod is not Guaranteed")
    return reasons


def refuse_hidden_limit(sandbox: str | None, quota_cpus: float | None, told_cpus: float | None) -> None:
    """Refuse to guess the number of threads where a sandbox hides the pod's CPU limit and nobody told it."""
    if sandbox is None or quota_cpus is not None or told_cpus is not None:
        return
    raise PreflightError(
        f"the sandbox ({sandbox}) hides this pod's CPU limit, and the variable that tells it is not set",
        where=TOLD_VARIABLE,
        next_step=f"set {TOLD_VARIABLE} to the pod's limits.cpu in its manifest, or run it without --inside",
    )
