"""GKE fixes GPU sharing when a node pool is created: use a matching node, or suggest a new pool; pure."""

from __future__ import annotations

from collections.abc import Mapping

from gputax.kubernetes.nodes import GKE_ACCELERATOR, GKE_CLIENTS, GKE_NO_PLUGIN, GKE_PARTITION, GKE_STRATEGY, NodeFacts
from gputax.kubernetes.objects import GPU_RESOURCE
from gputax.plan.techniques import Entitlement
from gputax.sharing.flavours.mig_profiles import chosen_profile, memory_of_mb
from gputax.sharing.flavours.offer import IN_TURNS, WHOLE, Offer, Wish, mig_share, mps_share

# GKE's names for the techniques.
STRATEGIES: Mapping[str, str] = {"time-slicing": "time-sharing", "mps": "mps"}


def divides(node: NodeFacts) -> bool:
    """Whether this is a GKE node with GKE's own device plugin."""
    return GKE_ACCELERATOR in node.labels and node.label(GKE_NO_PLUGIN) != "true"


def gke_offer(node: NodeFacts, wish: Wish) -> Offer:
    """Return the technique on a GKE node; refused if the node pool was created for another."""
    technique, parts = wish.technique, wish.parts
    clients = node.label(GKE_CLIENTS)
    replicas = int(clients) if clients.isdigit() else 1
    profile = ""
    if technique == "mig":
        profile = wish.mig_profile or node.label(GKE_PARTITION) or chosen_profile(node, parts)
    reasons = _against(node, technique, parts, profile)
    memory_mb = memory_of_mb(profile) if profile else None
    if technique == "mps" and node.memory_mb:
        memory_mb = node.memory_mb / replicas
    return Offer(
        technique,
        "gke",
        GPU_RESOURCE,
        parts if technique != "exclusive" else 1,
        _entitlement(node, technique, replicas, profile, memory_mb),
        host_ipc=technique == "mps",
        replicas=replicas if technique in STRATEGIES else 1,
        sm_percent=100 // replicas if technique == "mps" else None,
        memory_mb=memory_mb,
        caps_memory=technique == "mps",
        profile=profile,
        refusal="; ".join(reasons),
        refusal_step=pool_command(node, technique, parts, profile, wish.context) if reasons else "",
    )


def pool_command(node: NodeFacts, technique: str, parts: int, profile: str, context: str) -> str:
    """Return the command that creates a node pool for the technique in the context's cluster."""
    project, location, cluster = cluster_of(context)
    accelerator = [f"type={node.label(GKE_ACCELERATOR) or 'nvidia-tesla-a100'}", "count=1"]
    if technique in STRATEGIES:
        accelerator.append(f"gpu-sharing-strategy={STRATEGIES[technique]}")
        accelerator.append(f"max-shared-clients-per-gpu={max(2, parts)}")
    if profile:
        accelerator.append(f"gpu-partition-size={profile}")
    accelerator.append("gpu-driver-version=default")
    machine = node.label("node.kubernetes.io/instance-type") or "MACHINE_TYPE"
    return (
        f"gcloud container node-pools create gputax-{technique} --project {project} --location {location} "
        f"--cluster {cluster} --machine-type {machine} --num-nodes 1 --accelerator {','.join(accelerator)}"
    )


def cluster_of(context: str) -> tuple[str, str, str]:
    """Return project, location and cluster from a context like gke_PROJECT_LOCATION_CLUSTER, or placeholders."""
    parts = context.split("_", 3)
    if len(parts) == 4 and parts[0] == "gke":
        return parts[1], parts[2], parts[3]
    return "PROJECT", "LOCATION", "CLUSTER"


def _against(node: NodeFacts, technique: str, parts: int, profile: str) -> list[str]:
    strategy, clients, partition = (node.label(name) for name in (GKE_STRATEGY, GKE_CLIENTS, GKE_PARTITION))
    reasons = []
    wanted = STRATEGIES.get(technique, "")
    if strategy != wanted:
        reasons.append(f"{GKE_STRATEGY} is {strategy or 'not set'}, not {wanted or 'absent'}")
    elif wanted and not (clients.isdigit() and int(clients) >= parts):
        reasons.append(f"{GKE_CLIENTS} is {clients or 'not set'}, but {parts} tenants are requested")
    if partition != profile:
        reasons.append(f"{GKE_PARTITION} is {partition or 'not set'}, not {profile or 'absent'}")
    return reasons


def _entitlement(node: NodeFacts, technique: str, replicas: int, profile: str, memory_mb: float | None) -> Entitlement:
    if technique == "mps":
        return mps_share(replicas, memory_mb)
    if technique == "mig":
        return mig_share(profile, node)
    return IN_TURNS if technique == "time-slicing" else WHOLE
