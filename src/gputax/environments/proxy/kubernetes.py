"""`k8s+proxy`: a pod without a device whose driver is libvgpu; a proxy pod on the same node has the GPU."""

from __future__ import annotations

import json
import os
from dataclasses import replace

from gputax.environments.described import Described
from gputax.environments.evidence import Evidence
from gputax.environments.image import NATIVE_VARIABLES, software_settings
from gputax.environments.kubernetes import Kubernetes
from gputax.environments.process import ChildProcess
from gputax.environments.proxy.evidence import Intended, proxy_evidence
from gputax.environments.proxy.server import DEFAULT_TRANSPORT, SPIN_VARIABLE, spin_of
from gputax.errors import GputaxError, UsageError
from gputax.kubernetes.objects import APP, LIBVGPU_DIRECTORY, ROLE_LABEL, STATUS, PodPlan, proxy_plan, proxy_variables
from gputax.kubernetes.watch import state_of
from gputax.plan.environment import PROXY


class KubernetesProxy(Kubernetes):
    """Uses the proxy of the node's DaemonSet, or starts its own proxy pod if there is none."""

    _proxy_pod = ""
    _node = ""

    def start(self) -> ChildProcess:
        """Make sure that a proxy is ready, and start a worker on its node."""
        if self._driver.libcuda:
            raise UsageError(
                "--libcuda is a local file, which is not visible in a pod",
                next_step="use --device software or cuda",
            )
        self._proxy_pod, self._node = self._serving()
        return super().start()

    def plan(self) -> PodPlan:
        """Return the tenant's pod: on the proxy's node, with its socket and without any device."""
        return replace(super().plan(), node=self._node or self._options.node, tenant_of_proxy=True)

    def evidence(self, described: Described) -> Evidence:
        """Compare the worker's report on its driver with the proxy's status, and both with the pods."""
        place = super().evidence(described)
        reasons = list(place.reasons)
        if described.device_nodes:
            reasons.append(f"the tenant's pod has its own device nodes: {', '.join(described.device_nodes)}")
        if described.driver is None:
            return place.below(PROXY, [*reasons, "the worker was not asked about its driver"])
        try:
            answer = self._pods.cluster.run_in_pod(self._proxy_pod, STATUS)
            status = json.loads(answer)
        except (GputaxError, ValueError) as error:
            return place.below(PROXY, [*reasons, f"the proxy does not answer: {error}"])
        intended = Intended(f"{LIBVGPU_DIRECTORY}/libcuda.so.1", DEFAULT_TRANSPORT, same_pid_namespace=False)
        proxied = proxy_evidence(described.driver, status, intended)
        facts = {**proxied.facts, "proxy_pod": self._proxy_pod}
        return place.below(PROXY, [*reasons, *proxied.reasons], facts, list_reasons=True)

    def _variables(self) -> dict[str, str]:
        return {**NATIVE_VARIABLES, **proxy_variables()}

    def _serving(self) -> tuple[str, str]:
        """Return the pod and the node of a proxy that is ready."""
        cluster = self._pods.cluster
        for found in cluster.list("Pod", labels={"app.kubernetes.io/name": APP, ROLE_LABEL: "proxy"}):
            state = state_of(found)
            if state.phase == "ready" and self._options.node in ("", state.node):
                return str(found["metadata"]["name"]), state.node
        device = self._driver.device if self._driver.device != "auto" else "software"
        plan = proxy_plan(self._options.image, device, max(1, self._options.gpus), self._options.namespace)
        settings = {**software_settings(os.environ), SPIN_VARIABLE: spin_of(os.environ)}
        own = replace(
            plan,
            variables={**plan.variables, **settings},
            node=self._options.node,
            pull_policy=self._options.pull_policy,
            pull_secret=self._options.pull_secret,
        )
        ready = self._pods.ready(own, self._options.ready_timeout_s)
        return ready.name, state_of(ready.live).node
