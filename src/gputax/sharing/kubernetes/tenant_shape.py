"""A tenant's pod: its share of the device, its labels and its metrics port for Prometheus."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gputax.kubernetes.objects import PodPlan, Size
from gputax.sharing.flavours.offer import Offer
from gputax.sharing.kubernetes.tenant_pods import TENANT
from gputax.worker.tenant.info import IMAGE_VARIABLE, PORT_VARIABLE, TECHNIQUE_VARIABLE

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

    def shaped(self, plan: PodPlan) -> PodPlan:
        """Return the tenant's pod."""
        size = replace(self.size, gpus=1, gpu_resource=self.offer.resource) if self.offer else self.size
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
            },
            further_labels={TECHNIQUE_LABEL: self.technique, TENANT_LABEL: str(self.number)},
            ports={PORT_NAME: METRICS_PORT},
            knows_itself=True,
            host_ipc=bool(self.offer and self.offer.host_ipc),
        )
