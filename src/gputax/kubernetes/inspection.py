"""Collect everything that decides whether our pods will start in a cluster; facts that may not be read are None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gputax.errors import GputaxError
from gputax.kubernetes.client import Cluster
from gputax.kubernetes.nodes import node_facts, quantity
from gputax.kubernetes.objects import APP, Manifest
from gputax.kubernetes.permissions import PERMISSIONS
from gputax.kubernetes.watch import event_words, state_of

PLUGIN_NAMES = ("device-plugin", "nvidia-driver", "gpu-operator", "nvidia-container-toolkit", "gpu-feature-discovery")


def inspect_cluster(context: str, namespace: str) -> dict[str, Any]:
    """Return the facts; nearly all of them are missing if the cluster cannot be reached."""
    facts: dict[str, Any] = {"namespace": namespace, "problems": {}}
    try:
        cluster = Cluster(context, namespace)
        facts |= {"server": cluster.server, "context": cluster.context, "version": cluster.version()}
    except GputaxError as error:
        return {**facts, "unreachable": error.to_dict()}

    def asked(part: str, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except GputaxError as error:
            facts["problems"][part] = error.what
            return None

    try:
        facts["permissions"] = asked("permissions", lambda: _permissions(cluster))
        facts["namespace_labels"] = asked("namespace", lambda: _namespace_labels(cluster))
        facts["nodes"] = asked("nodes", lambda: [node_facts(node).to_dict() for node in cluster.list("Node")])
        facts["plugins"] = asked("plugins", lambda: _plugins(cluster))
        facts["quotas"] = asked("quotas", lambda: [quota_facts(quota) for quota in cluster.list("ResourceQuota")])
        facts["pods"] = asked("pods", lambda: _pods(cluster))
        facts["runtime_classes"] = asked(
            "runtime classes",
            lambda: {each["metadata"]["name"]: each["handler"] for each in cluster.list("RuntimeClass")},
        )
        facts["api_calls"] = cluster.calls
    finally:
        cluster.close()
    return facts


def quota_facts(quota: Manifest) -> dict[str, Any]:
    """Return the remaining amounts of a quota; pure."""
    status = quota.get("status") or {}
    used = status.get("used") or {}
    left = {
        name: quantity(str(hard)) - quantity(str(used.get(name, "0")))
        for name, hard in (status.get("hard") or {}).items()
    }
    return {"name": quota["metadata"]["name"], "left": left, "hard": status.get("hard") or {}}


def _permissions(cluster: Cluster) -> list[dict[str, Any]]:
    answers = []
    for each in PERMISSIONS:
        allowed, reason = cluster.allowed(each.verb, each.resource, group=each.group)
        answers.append(
            {"verb": each.verb, "resource": each.resource, "why": each.why, "allowed": allowed, "reason": reason}
        )
    return answers


def _namespace_labels(cluster: Cluster) -> dict[str, str] | None:
    found = cluster.get("Namespace", cluster.namespace)
    return None if found is None else dict(found["metadata"].get("labels") or {})


def _plugins(cluster: Cluster) -> list[dict[str, Any]]:
    found = []
    for each in cluster.list("Pod", namespace="*"):
        name = str(each["metadata"]["name"])
        if any(word in name for word in PLUGIN_NAMES):
            state = state_of(each)
            found.append(
                {
                    "name": name,
                    "namespace": each["metadata"].get("namespace"),
                    "ready": state.phase == "ready",
                    "ended": state.phase == "ended",
                    "words": state.words,
                    "node": state.node,
                }
            )
    return found


def _pods(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the namespace's pods that do not run, each with the cluster's reason."""
    found = []
    for each in cluster.list("Pod"):
        name, state = str(each["metadata"]["name"]), state_of(each)
        if state.phase in ("waiting", "stuck"):
            fields = {"involvedObject.name": name, "involvedObject.kind": "Pod"}
            words = state.words
            if state.reason in ("", "ContainerCreating"):
                words = event_words(cluster.list("Event", fields=fields)) or words
            ours = (each["metadata"].get("labels") or {}).get("app.kubernetes.io/name") == APP
            found.append({"name": name, "phase": state.phase, "reason": state.reason, "words": words, "ours": ours})
    return found
