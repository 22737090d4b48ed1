"""The registry of installations that share a GPU among pods, each with its own names for a technique; pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gputax.errors import unknown_name
from gputax.kubernetes.nodes import NodeFacts
from gputax.sharing.flavours import gke, nos, operator
from gputax.sharing.flavours.device_plugin import device_plugin_offer
from gputax.sharing.flavours.offer import Offer, Wish


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
        Flavour("gke", gke.divides, gke.gke_offer),
        Flavour("nos", nos.divides, nos.nos_offer),
        Flavour("operator", operator.divides, operator.operator_offer),
        Flavour("device-plugin", lambda node: True, device_plugin_offer),
    )
}


def flavour_of(node: NodeFacts) -> str:
    """Return the flavour that a node's labels show."""
    return next(flavour.name for flavour in FLAVOURS.values() if flavour.divides(node))


def offer_for(node: NodeFacts, wish: Wish, flavour: str = "auto") -> Offer:
    """Return how this node offers the technique."""
    chosen = flavour_of(node) if flavour == "auto" else flavour
    if chosen not in FLAVOURS:
        raise unknown_name("sharing flavour", chosen, ("auto", *FLAVOURS))
    return FLAVOURS[chosen].offer(node, wish)
