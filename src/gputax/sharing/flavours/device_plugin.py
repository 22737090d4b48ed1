"""NVIDIA's device plugin without the operator: a technique is a file in its ConfigMap; pure."""

from __future__ import annotations

from dataclasses import replace

from gputax.errors import UsageError
from gputax.kubernetes import nodes as names
from gputax.kubernetes.nodes import MIG_RESOURCE, SHARED_RESOURCE, NodeFacts
from gputax.kubernetes.objects import GPU_RESOURCE
from gputax.sharing.flavours.mig_profiles import chosen_profile, memory_of_mb
from gputax.sharing.flavours.offer import IN_TURNS, WHOLE, Offer, Wish, mig_share, mps_share
from gputax.sharing.flavours.plugin_files import EXCLUSIVE_KEY, file_key, plugin_files, replicas_for

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
