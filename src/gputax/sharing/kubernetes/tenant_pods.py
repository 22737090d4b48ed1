"""The pods of tenants that start together: their shape, one watch for all of them, deletion on demand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gputax.errors import Interrupted, PreflightError
from gputax.kubernetes.objects import APP, ROLE_LABEL, RUN_LABEL, Manifest, PodPlan, Size
from gputax.kubernetes.pods import DELETE_GRACE_S, GONE_TIMEOUT_S, ReadyPod, RunPods, uninterrupted
from gputax.kubernetes.watch import Clock, Say
from gputax.sharing.offer import Offer
from gputax.worker.tenant.info import IMAGE_VARIABLE, PORT_VARIABLE, TECHNIQUE_VARIABLE

TENANT = "tenant"
# Two techniques can have the same resource name. Labels and allocatable may then show the new one while the kubelet
# still has the old plugin's unhealthy devices: it rejects a pod that would run a second later.
REFUSED_AT_THE_NODE = "UnexpectedAdmissionError"
ADMISSION_GRACE_S = 30.0


class TenantPods(RunPods):
    """RunPods of tenants: no new pods once closing has begun, and another try where the node's devices change."""

    def __init__(self, context: str, namespace: str, say: Say, run_id: str = "", clock: Clock | None = None) -> None:
        super().__init__(context, namespace, say, run_id, clock)
        self._ended = False

    def ready(self, plan: PodPlan, timeout_s: float) -> ReadyPod:
        """Return the pod of this plan; concurrent calls with equal plans get the same pod."""
        with self._alone(plan):
            deadline = self.clock.now_s() + min(timeout_s, ADMISSION_GRACE_S)
            while True:
                try:
                    return super().ready(plan, timeout_s)
                except PreflightError as error:
                    if REFUSED_AT_THE_NODE not in error.what or self.clock.now_s() > deadline or self._ended:
                        raise
                self._say("the node's devices were changing; creating the pod again")
                self.clock.sleep(1)

    def empty(self) -> None:
        """Delete all pods of the run and wait until they are gone, because a GPU in use cannot be switched."""
        for name in list(self._made):
            self.remove(name)
        self._ready.clear()
        for name in list(self._leaving):
            if not self._watching().wait_gone(name, GONE_TIMEOUT_S):
                raise PreflightError(
                    f"pod {name} was not deleted within {GONE_TIMEOUT_S:g} s, so the node cannot be switched",
                    where=f"namespace {self.cluster.namespace}",
                    next_step=self.cluster.kubectl("delete", "pod", name, "--force"),
                )
            self._leaving.remove(name)

    def remove_left(self, run_id: str) -> None:
        """Delete the tenants of a killed run."""
        labels = {"app.kubernetes.io/managed-by": APP, ROLE_LABEL: TENANT, RUN_LABEL: run_id}
        for left in self.cluster.list("Pod", labels=labels):
            name = str(left["metadata"]["name"])
            self._say(f"deleting pod {name}, left by a killed run")
            self.cluster.delete("Pod", name, grace_s=DELETE_GRACE_S)

    def end_making(self) -> None:
        """Create no more pods; waits for a creation that is in progress in another thread."""
        with self._making:
            self._ended = True

    def close(self) -> None:
        """Delete all pods and close the connections."""
        with uninterrupted():
            self.end_making()
            super().close()

    def _make(self, plan: PodPlan) -> Manifest:
        with self._making:
            if self._ended:
                raise Interrupted("the experiment is ending: no more pods are created", where=f"pod {plan.name}")
            return super()._make(plan)

    def _give_up(self, name: str) -> None:
        if not self._ended:  # otherwise `close` deletes all of them
            self.remove(name)

    def _remove_finished(self) -> None:
        super()._remove_finished()
        for left in self.cluster.list("Pod", labels={"app.kubernetes.io/managed-by": APP, ROLE_LABEL: TENANT}):
            if (left.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
                self.cluster.delete("Pod", str(left["metadata"]["name"]))


METRICS_PORT = 8000
PORT_NAME = "prometheus"
TECHNIQUE_LABEL = "gputax.dev/technique"
TENANT_LABEL = "gputax.dev/tenant"


@dataclass(frozen=True)
class TenantShape:
    """The n-th tenant under a technique."""

    technique: str
    number: int
    """Counted from 1; also a label, so that equal tenants get separate pods."""
    size: Size
    node: str = ""
    offer: Offer | None = None
    """None with the proxy, where a tenant does not have its own device."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Further variables of its container."""

    def shaped(self, plan: PodPlan) -> PodPlan:
        """Return the tenant's pod."""
        offer, size = self.offer, self.size
        if offer is not None:
            size = replace(size, gpus=int(offer.counted), gpu_resource=offer.resource, further=offer.amounts)
        return replace(
            plan,
            size=size,
            role=TENANT,
            node=self.node or plan.node,
            variables={
                **plan.variables,
                PORT_VARIABLE: str(METRICS_PORT),
                TECHNIQUE_VARIABLE: self.technique,
                IMAGE_VARIABLE: plan.image,
                **self.variables,
            },
            further_labels={
                TECHNIQUE_LABEL: self.technique,
                TENANT_LABEL: str(self.number),
                **(offer.pod_labels if offer else {}),
            },
            annotations=offer.annotations if offer else {},
            scheduler=offer.scheduler if offer else "",
            ports={PORT_NAME: METRICS_PORT},
            knows_itself=True,
            host_ipc=bool(offer and offer.host_ipc),
        )
