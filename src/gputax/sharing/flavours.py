"""The installations that share a node's GPUs, and how each names its shares: device plugin, GPU operator, nos, GKE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gputax.errors import UsageError, unknown_name
from gputax.kubernetes import nodes as names
from gputax.kubernetes.nodes import (
    GKE_ACCELERATOR,
    GKE_CLIENTS,
    GKE_NO_PLUGIN,
    GKE_PARTITION,
    GKE_STRATEGY,
    MIG_RESOURCE,
    SHARED_RESOURCE,
    NodeFacts,
)
from gputax.kubernetes.objects import GPU_RESOURCE, Manifest
from gputax.plan.techniques import Entitlement
from gputax.sharing.fraction import FRACTION, SLICERS
from gputax.sharing.offer import (
    IN_TURNS,
    MIG_DONE,
    WHOLE,
    Offer,
    Wish,
    chosen_profile,
    memory_of_mb,
    mig_share,
    mps_share,
    node_technique,
)

# The plugin rejects fewer; a single tenant is one pod on several replicas.
LEAST_REPLICAS = 2
EXCLUSIVE_KEY = "gputax-exclusive"
_SECTIONS = {"time-slicing": "timeSlicing", "mps": "mps"}


def replicas_for(parts: int) -> int:
    """Return the number of shares that the plugin should offer."""
    return max(LEAST_REPLICAS, parts)


def file_key(technique: str, parts: int, gpus: int = 1) -> str:
    """Return the file's name; it contains all parameters, because the plugin reads a file once per name."""
    if technique not in _SECTIONS:
        return EXCLUSIVE_KEY
    return f"gputax-{technique}-{replicas_for(parts)}" + ("-packed" if gpus > 1 else "")


def plugin_file(technique: str, parts: int, gpus: int = 1) -> str:
    """Return the file's text."""
    import yaml

    document: Manifest = {"version": "v1"}
    if technique in _SECTIONS:
        if gpus > 1:
            # By default the plugin spreads tenants over the GPUs, so they would not share one.
            document["flags"] = {"plugin": {"sharedDevicesAllocationPolicy": "packed"}}
        document["sharing"] = {
            _SECTIONS[technique]: {
                "renameByDefault": True,
                "failRequestsGreaterThanOne": True,
                "resources": [{"name": GPU_RESOURCE, "replicas": replicas_for(parts)}],
            }
        }
    return str(yaml.safe_dump(document, sort_keys=False))


def plugin_files(parts: int, gpus: int = 1) -> dict[str, str]:
    """Return all files of an experiment at once, because a mounted ConfigMap is updated only once a minute."""
    return {file_key(name, parts, gpus): plugin_file(name, parts, gpus) for name in ("exclusive", *_SECTIONS)}


# The most clients of NVIDIA's control daemon; older GPUs (below compute capability 7.5) allow fewer.
MOST_MPS_CLIENTS, MOST_OLD_MPS_CLIENTS = 48, 16


def device_plugin_offer(node: NodeFacts, wish: Wish) -> Offer:
    """Return the technique as a file in the plugin's ConfigMap, selected by a label; MIG only if already enabled."""
    if wish.technique == "mig":
        found = mig(node, wish, "device-plugin")
        step = "install NVIDIA's GPU operator (--sharing-flavour operator); or on the node: sudo nvidia-smi -i 0 -mig 1"
        refused = node.offered(found.resource) < found.least
        why = "NVIDIA's device plugin cannot partition a GPU with MIG; this needs the GPU operator's MIG manager"
        return replace(found, labels={}, config={}, refusal=why if refused else "", refusal_step=step)
    return by_file(node, wish, "device-plugin")


def refuse_too_many_mps_clients(node: NodeFacts, parts: int) -> None:
    """Raise if the control daemon would refuse this many clients."""
    capability = tuple(node.label(f"nvidia.com/gpu.compute.{part}") for part in ("major", "minor"))
    old = all(part.isdigit() for part in capability) and tuple(map(int, capability)) < (7, 5)
    most = MOST_OLD_MPS_CLIENTS if old else MOST_MPS_CLIENTS
    if parts > most:
        raise UsageError(
            f"MPS supports at most {most} tenants on this GPU, not {parts}",
            where=f"node {node.name}",
            next_step=f"use --tenants up to {most}",
        )


def by_file(node: NodeFacts, wish: Wish, flavour: str) -> Offer:
    """Return the technique as a file in the plugin's ConfigMap, selected by a label of the node."""
    technique, parts = wish.technique, wish.parts
    if technique == "exclusive":
        return _exclusive(node, flavour)
    replicas = replicas_for(parts)
    caps = technique == "mps"
    if caps:
        refuse_too_many_mps_clients(node, parts)
    memory_mb = node.memory_mb / replicas if caps and node.memory_mb else None
    return Offer(
        technique,
        flavour,
        SHARED_RESOURCE,
        replicas,
        mps_share(replicas, memory_mb) if caps else IN_TURNS,
        labels={names.CONFIG_LABEL: file_key(technique, parts, node.gpus)},
        shows={names.STRATEGY_LABEL: (technique,), names.REPLICAS_LABEL: (str(replicas),)},
        config=plugin_files(parts, node.gpus),
        replicas=replicas,
        sm_percent=100 // replicas if caps else None,
        memory_mb=memory_mb,
        caps_memory=caps,
    )


def _exclusive(node: NodeFacts, flavour: str) -> Offer:
    shows = {names.STRATEGY_LABEL: ("none", ""), names.REPLICAS_LABEL: ("1", "0", "")}
    shared = node.label(names.STRATEGY_LABEL) not in shows[names.STRATEGY_LABEL] or node.offered(SHARED_RESOURCE) > 0
    # A node without sharing needs no change.
    labels: dict[str, str | None] = {names.CONFIG_LABEL: EXCLUSIVE_KEY} if shared else {}
    config = {EXCLUSIVE_KEY: plugin_files(1)[EXCLUSIVE_KEY]} if shared else {}
    return Offer("exclusive", flavour, GPU_RESOURCE, 1, WHOLE, labels=labels, shows=shows, config=config)


def mig(node: NodeFacts, wish: Wish, flavour: str) -> Offer:
    """Return MIG slices, with the plugin's resource names."""
    profile = chosen_profile(node, wish.parts, wish.mig_profile)
    # With the strategy `single` all slices are equal, and the resource is named like a GPU.
    single = node.label(names.MIG_STRATEGY_LABEL) == "single"
    sliced = _exclusive(node, flavour)
    return Offer(
        "mig",
        flavour,
        GPU_RESOURCE if single else f"{MIG_RESOURCE}{profile}",
        wish.parts,
        mig_share(profile, node),
        labels=sliced.labels,
        config=sliced.config,
        profile=profile,
        memory_mb=memory_of_mb(profile),
    )


MIG_OFF = "all-disabled"


def _by_operator(node: NodeFacts) -> bool:
    """Whether the node's labels show the operator."""
    labels = (names.MIG_CONFIG_LABEL, names.MIG_STATE_LABEL)
    return any(name in labels or name.startswith(names.OPERATOR_LABELS) for name in node.labels)


def operator_offer(node: NodeFacts, wish: Wish) -> Offer:
    """Return the technique under the GPU operator: the plugin's files, or MIG by a label with a status label."""
    if wish.technique == "mig":
        found = mig(node, wish, "operator")
        labels = {names.MIG_CONFIG_LABEL: f"all-{found.profile}"}
        return replace(found, labels={**found.labels, **labels}, shows={names.MIG_STATE_LABEL: (MIG_DONE,)})
    found = by_file(node, wish, "operator")
    if node.label(names.MIG_CONFIG_LABEL) in ("", MIG_OFF):
        return found
    return replace(
        found,
        labels={**found.labels, names.MIG_CONFIG_LABEL: MIG_OFF},
        shows={**found.shows, names.MIG_STATE_LABEL: (MIG_DONE,)},
    )


def _by_nos(node: NodeFacts) -> bool:
    """Whether the node's labels show nos."""
    return names.NOS_LABEL in node.labels


def nos_offer(node: NodeFacts, wish: Wish) -> Offer:
    """Return the technique under nos, selected by a label; the resource appears when pods request it."""
    if wish.technique not in ("mps", "mig"):
        found = by_file(node, wish, "nos")
        freed: dict[str, str | None] = {names.NOS_LABEL: None} if names.NOS_LABEL in node.labels else {}
        return replace(found, labels={**found.labels, **freed})
    profile = chosen_profile(node, wish.parts, wish.mig_profile)
    size = profile.partition(".")[2]
    mps = wish.technique == "mps"
    # nos caps only the memory: a tenant may use every SM.
    capped = Entitlement(f"up to all SMs, {size.removesuffix('gb')} GB", 1.0)
    return Offer(
        wish.technique,
        "nos",
        f"{GPU_RESOURCE}-{size}" if mps else f"{MIG_RESOURCE}{profile}",
        wish.parts,
        capped if mps else mig_share(profile, node),
        labels={names.NOS_LABEL: wish.technique},
        host_ipc=mps,
        on_demand=True,
        replicas=wish.parts if mps else 1,
        memory_mb=memory_of_mb(profile),
        caps_memory=mps,
        profile="" if mps else profile,
    )


# GKE's names for the techniques.
STRATEGIES: Mapping[str, str] = {"time-slicing": "time-sharing", "mps": "mps"}


def _by_gke(node: NodeFacts) -> bool:
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


@dataclass(frozen=True)
class Flavour:
    """One kind of installation that shares GPUs."""

    name: str
    divides: Callable[[NodeFacts], bool]
    """Whether a node's labels show it."""
    offer: Callable[[NodeFacts, Wish], Offer]


# In order of detection: every node may have the device plugin, so it comes last.
FLAVOURS: dict[str, Flavour] = {
    flavour.name: flavour
    for flavour in (
        Flavour("gke", _by_gke, gke_offer),
        Flavour("nos", _by_nos, nos_offer),
        *(Flavour(slicer.name, slicer.divides, slicer.offer) for slicer in SLICERS.values()),
        Flavour("operator", _by_operator, operator_offer),
        Flavour("device-plugin", lambda node: True, device_plugin_offer),
    )
}


def flavour_of(node: NodeFacts) -> str:
    """Return the flavour that a node's labels show."""
    return next(flavour.name for flavour in FLAVOURS.values() if flavour.divides(node))


def offer_for(node: NodeFacts, wish: Wish, flavour: str = "auto") -> Offer:
    """Return how this node offers the technique: by the technique's own offer, else by that of its installation."""
    own = node_technique(wish.technique).offer
    if own is not None:
        return own(node, wish)
    chosen = flavour_of(node) if flavour == "auto" else flavour
    if chosen not in FLAVOURS:
        raise unknown_name("sharing flavour", chosen, ("auto", *FLAVOURS))
    if wish.technique == FRACTION and chosen not in SLICERS:
        raise UsageError(
            f"{chosen} does not give tenants fractions of a GPU",
            where=f"node {node.name}",
            next_step=f"name what does: --sharing-flavour {' or '.join(SLICERS)}",
        )
    return FLAVOURS[chosen].offer(node, wish)
