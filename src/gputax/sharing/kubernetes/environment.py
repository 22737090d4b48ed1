"""`k8s+time-slicing`, `k8s+mps`, `k8s+mig`: the worker is one tenant of a GPU that its node already shares."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gputax.environments.environment import Described, Evidence
from gputax.environments.kubernetes import Kubernetes
from gputax.environments.process import ChildProcess
from gputax.errors import PreflightError
from gputax.kubernetes import nodes as names
from gputax.kubernetes.client import Cluster
from gputax.kubernetes.nodes import SHARED_RESOURCE, NodeFacts
from gputax.kubernetes.objects import GPU_RESOURCE, PodPlan
from gputax.kubernetes.pods import RunPods
from gputax.plan.driver import DriverChoice
from gputax.plan.environment import EnvironmentName
from gputax.plan.options import EnvironmentOptions
from gputax.sharing.evidence import technique_evidence
from gputax.sharing.flavours import offer_for
from gputax.sharing.kubernetes.node import gpu_nodes, others_of_run
from gputax.sharing.offer import Offer, Wish, unmet

# With MIG's strategy `single` a slice is named like a GPU; feature discovery appends its profile to the product.
_SLICE = re.compile(r"-MIG-(\d+g\.\d+gb)")


@dataclass(frozen=True)
class Standing:
    """A node, and how it offers the technique."""

    node: str
    offer: Offer


def find_standing(cluster: Cluster, technique: str, options: EnvironmentOptions) -> Standing:
    """Return the first GPU node that offers the technique; raise with what is missing on each node."""
    missing = {}
    for node in gpu_nodes(cluster, options.node):
        offer = standing_offer(node, Wish(technique, 1, options.mig_profile, cluster.context), options.sharing_flavour)
        reasons = [offer.refusal] if offer.refusal else unmet(node, offer)
        if not reasons:
            return Standing(node.name, offer)
        missing[node.name] = "; ".join(reasons)
    raise PreflightError(
        f"no node offers {technique} now: " + ". ".join(f"{name}: {words}" for name, words in missing.items()),
        where=f"environment k8s+{technique}",
        next_step=f"gputax share --env k8s --tech {technique} switches the node and restores it; "
        "docs/sharing.md has the manual steps",
    )


def standing_offer(node: NodeFacts, wish: Wish, flavour: str = "auto") -> Offer:
    """Return what the node must show for the technique, with the number of shares that it reports; pure."""
    profile = wish.mig_profile or _profile_of_a_slice(node) if wish.technique == "mig" else ""
    offer = offer_for(node, replace(wish, parts=_shares(node, wish.technique), mig_profile=profile), flavour)
    unnamed = offer.resource == SHARED_RESOURCE and not node.offered(SHARED_RESOURCE)
    refusal = offer.refusal
    if wish.technique == "mig" and offer.resource == GPU_RESOURCE and not (profile or refusal):
        refusal = f"{names.PRODUCT_LABEL} is {node.label(names.PRODUCT_LABEL) or 'not set'}, which is not a MIG slice"
    return replace(
        offer,
        # Without `renameByDefault` the shares are named like whole GPUs; only the labels distinguish them.
        resource=GPU_RESOURCE if unnamed else offer.resource,
        least=1,
        # The plugin's configuration file does not matter here; the node shows its effect.
        labels={name: value for name, value in offer.labels.items() if name == names.NOS_LABEL},
        config={},
        refusal=refusal,
    )


def _shares(node: NodeFacts, technique: str) -> int:
    """Return the number of shares that the node reports; 1 for MIG."""
    labels = [node.label(name) for name in (names.REPLICAS_LABEL, names.GKE_CLIENTS)]
    return max((int(text) for text in labels if text.isdigit() and technique != "mig"), default=1) or 1


def _profile_of_a_slice(node: NodeFacts) -> str:
    found = _SLICE.search(node.label(names.PRODUCT_LABEL))
    return found[1] if found else ""


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
