"""`k8s+time-slicing`, `k8s+mps`, `k8s+mig`: the worker is one tenant of a GPU that its node already shares."""

from __future__ import annotations

from dataclasses import replace

from gputax.environments.described import Described
from gputax.environments.evidence import Evidence
from gputax.environments.kubernetes import Kubernetes
from gputax.environments.process import ChildProcess
from gputax.kubernetes.objects import PodPlan
from gputax.kubernetes.pods import RunPods
from gputax.plan.driver import DriverChoice
from gputax.plan.environment import EnvironmentName
from gputax.plan.options import EnvironmentOptions
from gputax.sharing.evidence import technique_evidence
from gputax.sharing.kubernetes.nodes import gpu_nodes, others_of_run
from gputax.sharing.kubernetes.standing import Standing, find_standing


class KubernetesTechnique(Kubernetes):
    """Requests one share of the GPU; only `gputax share` switches nodes and starts several tenants."""

    def __init__(
        self, name: str, pods: RunPods, options: EnvironmentOptions, driver: DriverChoice | None = None
    ) -> None:
        self._technique = EnvironmentName.parse(name).sharing_layer
        self._standing: Standing | None = None
        super().__init__(name, pods, options, driver, self._with_share)

    def start(self) -> ChildProcess:
        """Start the worker on a node that offers the technique; raise if there is none."""
        self._standing = self._standing or find_standing(self._pods.cluster, self._technique, self._options)
        return super().start()

    def evidence(self, described: Described) -> Evidence:
        """Compare the worker's view of its share with the node's state after the load."""
        own = super().evidence(described)
        if self._standing is None:
            return own
        cluster, place = self._pods.cluster, self._standing
        node = gpu_nodes(cluster, place.node)[0]
        others = others_of_run(cluster, place.node, self._pods.run_id)
        proof = technique_evidence(place.offer, node, [own], [described], others.with_gpu if others else ())
        # In the document of a run the warning comes before the facts.
        warning = {"warning": proof.warning} if proof.warning else {}
        return Evidence.of(proof.layer, proof.reasons, {**warning, **own.facts, "technique": proof.facts})

    def _with_share(self, plan: PodPlan) -> PodPlan:
        size = replace(plan.size, gpus=1)
        if self._standing is None:
            return replace(plan, size=size)
        offer = self._standing.offer
        size = replace(size, gpu_resource=offer.resource)
        return replace(plan, node=self._standing.node, size=size, host_ipc=offer.host_ipc)
