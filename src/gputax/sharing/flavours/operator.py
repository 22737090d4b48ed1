"""NVIDIA's GPU operator: the device plugin's files, and MIG by a label with a status label; pure."""

from __future__ import annotations

from dataclasses import replace

from gputax.kubernetes import nodes as names
from gputax.kubernetes.nodes import NodeFacts
from gputax.sharing.flavours.device_plugin import by_file, mig
from gputax.sharing.flavours.offer import MIG_DONE, Offer, Wish

MIG_OFF = "all-disabled"


def divides(node: NodeFacts) -> bool:
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
