"""The label of nodes that can run Xen guests: who has it, who gets it, and its removal."""

from __future__ import annotations

from collections.abc import Callable

from gputax.deploy.plan import LABELLED, LabelNodes, Manifest
from gputax.deploy.tools import Tools
from gputax.errors import PreflightError

# On nodes that we labelled, so that a label of others stays.
OURS = "gputax.dev/labelled"


def labelled(tools: Tools, action: LabelNodes) -> bool:
    """Whether all of these nodes have the label; with no names, whether some node has it."""
    found = {str(node["metadata"]["name"]) for node in tools.cluster().list("Node", labels={action.label: LABELLED})}
    return set(action.nodes) <= found if action.nodes else bool(found)


def label(tools: Tools, action: LabelNodes, say: Callable[[str], None]) -> None:
    """Label the nodes that were named; raise where none was."""
    if not action.nodes:
        raise PreflightError(
            f"no node has the label {action.label}={LABELLED}",
            next_step="install Xen and its runtime handler on a node (docs/xen.md), then --xen-nodes NAME",
        )
    nodes = {name: tools.cluster().get("Node", name) for name in action.nodes}
    for name, node in nodes.items():
        if node is None:
            raise PreflightError(f"no node is called {name}", next_step="kubectl get nodes")
    for name, node in nodes.items():
        if _labels(node).get(action.label) == LABELLED:
            continue
        say(f"labelling Node {name} {action.label}={LABELLED}")
        tools.cluster().patch("Node", name, _change(action.label, LABELLED))


def unlabel(tools: Tools, action: LabelNodes, say: Callable[[str], None]) -> None:
    """Remove the label from the nodes that got it from us."""
    for name in action.nodes:
        node = tools.cluster().get("Node", name)
        if node is not None and OURS in (node["metadata"].get("annotations") or {}):
            tools.cluster().patch("Node", name, _change(action.label, None))
            say(f"Node {name}: label {action.label} removed")


def _change(label_name: str, value: str | None) -> Manifest:
    return {"metadata": {"labels": {label_name: value}, "annotations": {OURS: value}}}


def _labels(node: Manifest | None) -> Manifest:
    return ((node or {}).get("metadata") or {}).get("labels") or {}
