"""Who divides a GPU among pods and what each calls a technique: device plugin, GPU operator, GKE, nos; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gputax.errors import UsageError, unknown_name
from gputax.kubernetes import nodes as names
from gputax.kubernetes.nodes import MIG_RESOURCE, SHARED_RESOURCE, NodeFacts
from gputax.kubernetes.objects import GPU_RESOURCE
from gputax.plan.techniques import Entitlement
from gputax.sharing.flavours.entitlements import IN_TURNS, WHOLE, mig_share, mps_share
from gputax.sharing.flavours.gke import gke_offer
from gputax.sharing.flavours.mig_profiles import chosen_profile, memory_of_mb
from gputax.sharing.flavours.offer import MIG_DONE, Offer
from gputax.sharing.flavours.plugin_files import EXCLUSIVE_KEY, file_key, plugin_files, replicas_for

# NVIDIA's control daemon takes at most so many clients, older GPUs (below compute capability 7.5) fewer.
MOST_MPS_CLIENTS, MOST_OLD_MPS_CLIENTS = 48, 16
MIG_OFF = "all-disabled"


@dataclass(frozen=True)
class Wish:
    """What is asked of a node."""

    technique: str
    parts: int
    mig_profile: str = ""
    context: str = ""
    """The kubeconfig's context, which on GKE names the cluster."""


def device_plugin_offer(node: NodeFacts, wish: Wish) -> Offer:
    """NVIDIA's device plugin by itself: a file of its ConfigMap, chosen by a label; MIG only where it is on already."""
    if wish.technique == "mig":
        found = _mig(node, wish, "device-plugin")
        step = "install NVIDIA's GPU operator (--sharing-flavour operator); or on the node: sudo nvidia-smi -i 0 -mig 1"
        refused = node.offered(found.resource) < found.least
        why = "NVIDIA's device plugin alone cannot divide a GPU by MIG; that is the GPU operator's MIG manager"
        return replace(found, labels={}, config={}, refusal=why if refused else "", refusal_step=step)
    return _by_file(node, wish, "device-plugin")


def operator_offer(node: NodeFacts, wish: Wish) -> Offer:
    """The GPU operator: the same files, and MIG by a label whose state it tells."""
    if wish.technique == "mig":
        found = _mig(node, wish, "operator")
        labels = {names.MIG_CONFIG_LABEL: f"all-{found.profile}"}
        return replace(found, labels={**found.labels, **labels}, shows={names.MIG_STATE_LABEL: (MIG_DONE,)})
    found = _by_file(node, wish, "operator")
    if node.label(names.MIG_CONFIG_LABEL) in ("", MIG_OFF):
        return found
    return replace(
        found,
        labels={**found.labels, names.MIG_CONFIG_LABEL: MIG_OFF},
        shows={**found.shows, names.MIG_STATE_LABEL: (MIG_DONE,)},
    )


def nos_offer(node: NodeFacts, wish: Wish) -> Offer:
    """The older nos: a label says how to partition, and the resource appears when pods ask for it."""
    if wish.technique not in ("mps", "mig"):
        found = _by_file(node, wish, "nos")
        freed: dict[str, str | None] = {names.NOS_LABEL: None} if names.NOS_LABEL in node.labels else {}
        return replace(found, labels={**found.labels, **freed})
    profile = chosen_profile(node, wish.parts, wish.mig_profile)
    size = profile.partition(".")[2]
    mps = wish.technique == "mps"
    # nos caps the memory alone: a tenant may use every SM.
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


FLAVOURS: Mapping[str, Callable[[NodeFacts, Wish], Offer]] = {
    "device-plugin": device_plugin_offer,
    "operator": operator_offer,
    "gke": lambda node, wish: gke_offer(node, wish.technique, wish.parts, wish.mig_profile, wish.context),
    "nos": nos_offer,
}


def flavour_of(node: NodeFacts) -> str:
    """Tell from a node's labels who divides its GPU."""
    if names.GKE_ACCELERATOR in node.labels and node.label(names.GKE_NO_PLUGIN) != "true":
        return "gke"
    if names.NOS_LABEL in node.labels:
        return "nos"
    operator = (names.MIG_CONFIG_LABEL, names.MIG_STATE_LABEL)
    if any(name in operator or name.startswith(names.OPERATOR_LABELS) for name in node.labels):
        return "operator"
    return "device-plugin"


def offer_for(node: NodeFacts, wish: Wish, flavour: str = "auto") -> Offer:
    """Return what the technique is on this node."""
    chosen = flavour_of(node) if flavour == "auto" else flavour
    if chosen not in FLAVOURS:
        raise unknown_name("sharing flavour", chosen, ("auto", *FLAVOURS))
    return FLAVOURS[chosen](node, wish)


def refuse_too_many_mps_clients(node: NodeFacts, parts: int) -> None:
    """Refuse what the control daemon would refuse."""
    capability = tuple(node.label(f"nvidia.com/gpu.compute.{part}") for part in ("major", "minor"))
    old = all(part.isdigit() for part in capability) and tuple(map(int, capability)) < (7, 5)
    most = MOST_OLD_MPS_CLIENTS if old else MOST_MPS_CLIENTS
    if parts > most:
        raise UsageError(
            f"MPS takes at most {most} tenants on this GPU, {parts} were asked for",
            where=f"node {node.name}",
            next_step=f"--tenants up to {most}",
        )


def _by_file(node: NodeFacts, wish: Wish, flavour: str) -> Offer:
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
    # A node that nobody shares is left as it is.
    labels: dict[str, str | None] = {names.CONFIG_LABEL: EXCLUSIVE_KEY} if shared else {}
    config = {EXCLUSIVE_KEY: plugin_files(1)[EXCLUSIVE_KEY]} if shared else {}
    return Offer("exclusive", flavour, GPU_RESOURCE, 1, WHOLE, labels=labels, shows=shows, config=config)


def _mig(node: NodeFacts, wish: Wish, flavour: str) -> Offer:
    profile = chosen_profile(node, wish.parts, wish.mig_profile)
    # With the strategy `single` all slices are alike and are called GPUs.
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
