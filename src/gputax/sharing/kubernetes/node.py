"""The node of an experiment: find it, share it equally, switch it to a technique, wait for the offer, restore it."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gputax.errors import GputaxError, PreflightError
from gputax.kubernetes.client import Cluster, ForbiddenError
from gputax.kubernetes.nodes import MIG_STATE_LABEL, VENDOR, NodeFacts, node_facts, quantity
from gputax.kubernetes.objects import RUN_LABEL, VGPU_RESOURCE, Manifest, Size
from gputax.kubernetes.pods import as_yaml
from gputax.kubernetes.watch import Clock, Say, state_of
from gputax.plan.options import EnvironmentOptions
from gputax.sharing.flavours import flavour_of, offer_for
from gputax.sharing.kubernetes.claim import ACCESS, BEFORE, NodeClaim
from gputax.sharing.kubernetes.plugin_config import PluginFiles, find_place
from gputax.sharing.kubernetes.tenant_pods import TenantPods
from gputax.sharing.offer import MIG_FAILED, Offer, Wish, failure, unmet

# The assumed share of other pods on a node if we may not list them.
UNKNOWN_OTHERS = 0.2
LEAST_MILLICPUS = 50
LEAST_MEMORY_MB = 256
STEP_MILLICPUS = 10


@dataclass(frozen=True)
class Others:
    """The resources that other pods request on a node."""

    millicpus: float = 0.0
    memory_mb: float = 0.0
    with_gpu: tuple[str, ...] = ()


def others_on(pods: Iterable[Manifest], run_id_label: str, run_id: str) -> Others:
    """Add up the requests of the pods on a node, except those of this run."""
    millicpus = memory_mb = 0.0
    with_gpu = []
    for each in pods:
        metadata = each.get("metadata") or {}
        if (metadata.get("labels") or {}).get(run_id_label) == run_id:
            continue
        if (each.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            continue
        for container in (each.get("spec") or {}).get("containers") or ():
            resources = container.get("resources") or {}
            requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
            millicpus += quantity(str(requests.get("cpu", "0"))) * 1000
            memory_mb += quantity(str(requests.get("memory", "0"))) / 2**20
            if any(name.startswith(VENDOR) for name in requests):
                with_gpu.append(f"{metadata.get('namespace')}/{metadata.get('name')}")
    return Others(millicpus, memory_mb, tuple(dict.fromkeys(with_gpu)))


def tenant_size(node: NodeFacts, parts: int, others: Others | None, cpus: int, memory: str) -> Size:
    """Return a tenant's size: as requested, or an equal share of what is left on the node."""
    total = quantity(node.allocatable.get("cpu", "0")) * 1000
    total_mb = quantity(node.allocatable.get("memory", "0")) / 2**20
    left = total * (1 - UNKNOWN_OTHERS) if others is None else total - others.millicpus
    left_mb = total_mb * (1 - UNKNOWN_OTHERS) if others is None else total_mb - others.memory_mb
    each_mb = min(quantity(memory) / 2**20, left_mb / parts) if total_mb else quantity(memory) / 2**20
    each = int(left / parts) // STEP_MILLICPUS * STEP_MILLICPUS
    if each_mb < LEAST_MEMORY_MB or (not cpus and each < LEAST_MILLICPUS):
        raise PreflightError(
            f"{parts} tenants do not fit: {max(0.0, left) / 1000:.2f} CPUs and {max(0.0, left_mb):.0f} MiB are left",
            where=f"node {node.name}",
            next_step="use fewer --tenants or another --node, or stop other pods there: kubectl get pods -A -o wide",
        )
    whole = each_mb * 2**20 == quantity(memory)
    text = memory if whole else f"{int(each_mb)}Mi"
    if cpus or each >= 1000:
        # Whole CPUs, because a kubelet can reserve those for one container.
        return Size(cpus or each // 1000, text)
    return Size(1, text, millicpus=each)


def listed_nodes(cluster: Cluster) -> list[NodeFacts]:
    """Return all nodes."""
    try:
        return [node_facts(each) for each in cluster.list("Node")]
    except ForbiddenError as error:
        raise PreflightError(error.what, where=error.where, next_step=ACCESS) from error


def gpu_nodes(cluster: Cluster, named: str = "") -> list[NodeFacts]:
    """Return the named node, or all usable nodes with a GPU, sorted by name."""
    nodes = listed_nodes(cluster)
    if named:
        nodes = [node for node in nodes if node.name == named]
        if not nodes:
            raise PreflightError(f"node {named} does not exist", next_step="kubectl get nodes")
        return nodes
    found = sorted((node for node in nodes if node.has_gpu and node.usable), key=lambda node: node.name)
    if not found:
        raise PreflightError(
            "no usable node offers a GPU",
            where=f"{len(nodes)} nodes of the cluster",
            next_step="run gputax doctor --env k8s; without a GPU: gputax share --env bare",
        )
    return found


def others_of_run(cluster: Cluster, node: str, run_id: str) -> Others | None:
    """Return the resources that other pods use on a node; None if we may not list them."""
    try:
        there = cluster.list("Pod", namespace="*", fields={"spec.nodeName": node})
    except ForbiddenError:
        return None
    return others_on(there, RUN_LABEL, run_id)


FIRST_NEWS_S = 30.0


class NodeWatch:
    """Follows a node in one thread and one request, which ends with the client's connections."""

    def __init__(self, cluster: Cluster, name: str, clock: Clock) -> None:
        self.name, self._clock = name, clock
        self._cluster = cluster
        self._changed = threading.Condition()
        self._seen: list[NodeFacts] = []
        """All states of the node: a short one, such as `pending`, must not be missed."""
        self._failure: BaseException | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._follow, name="node-watch", daemon=True)
        self._thread.start()

    def current(self) -> NodeFacts:
        """Return the node as last reported by the API server."""
        self.position()
        return self._seen[-1]

    def position(self) -> int:
        """Return the number of states seen so far, from which `wait_for` can then check all later ones."""
        with self._changed:
            self._changed.wait_for(lambda: self._seen or self._failure, FIRST_NEWS_S)
            if self._failure is not None:
                raise self._failure
            if not self._seen:
                raise PreflightError(f"the watch reports nothing about node {self.name}", next_step="kubectl get nodes")
            return len(self._seen)

    def wait_for(self, missing: Callable[[NodeFacts], str], since: int, timeout_s: float, say: Say) -> str:
        """Wait until nothing is missing, for at most `timeout_s`; return what is still missing.

        `missing` checks the state at `since` and every later one, and may raise to give up.
        """
        deadline = self._clock.now_s() + timeout_s
        looked_at, said = since - 1, ""
        while True:
            fresh = self._after(looked_at, deadline - self._clock.now_s())
            if not fresh:
                return said
            for node in fresh:
                words = missing(node)
                if not words:
                    return ""
                if words != said:
                    say(f"node {self.name}: {words}")
                    said = words
            looked_at += len(fresh)

    def _after(self, position: int, timeout_s: float) -> list[NodeFacts]:
        with self._changed:
            self._clock.wait_for(self._changed, lambda: len(self._seen) > position or self._failure, timeout_s)
            if self._failure is not None:
                raise self._failure
            return self._seen[position:]

    def close(self) -> None:
        """Stop following."""
        self._closed = True

    def _follow(self) -> None:
        try:
            for event, node in self._cluster.watch("Node", labels={}, fields={"metadata.name": self.name}):
                if self._closed:
                    return
                if event == "DELETED":
                    raise PreflightError(
                        f"node {self.name} was removed from the cluster", next_step="kubectl get nodes"
                    )
                with self._changed:
                    self._seen.append(node_facts(node))
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()


class SharingNode:
    """The selected node, its previous state and its current state."""

    def __init__(self, pods: TenantPods, options: EnvironmentOptions) -> None:
        self._pods, self._cluster, self._options = pods, pods.cluster, options
        self._claim = NodeClaim(self._cluster, pods.run_id)
        self._watches: dict[str, NodeWatch] = {}
        self._plugin: PluginFiles | None = None
        self._sizes: dict[tuple[str, int], Size] = {}
        self._files: dict[str, str] = {}
        self._name = ""
        self.offer: Offer | None = None

    def bring_to(self, technique: str, parts: int, say: Say) -> Offer:
        """Switch the node and wait until it offers the technique; raise if it never does."""
        self.offer = None
        wish = Wish(technique, parts, self._options.mig_profile, self._cluster.context)
        node, offer = self._chosen(wish)
        if offer.refusal:
            raise PreflightError(
                f"{technique} is not offered: {offer.refusal}", where=f"node {node.name}", next_step=offer.refusal_step
            )
        self._name = node.name
        self._take_over(node, say)
        if unmet(node, offer):
            self._pods.empty()
            self._switch(node, offer, say)
        self.offer = offer
        return offer

    def current(self) -> NodeFacts:
        """Return the node as last reported by the watch."""
        return self._watch(self._name).current()

    def others(self) -> Others | None:
        """Return the resources that other pods use on the node; None if we may not list them."""
        return others_of_run(self._cluster, self._name, self._pods.run_id)

    def with_places(self, parts: int) -> NodeFacts:
        """Choose the node for tenants of a GPU proxy: one that offers so many places behind its proxy."""
        nodes = [node for node in listed_nodes(self._cluster) if node.usable]
        named = self._name or self._options.node  # all cells use the same node
        if named:
            nodes = [node for node in nodes if node.name == named]
        found = [node for node in nodes if node.offered(VGPU_RESOURCE) >= parts]
        if not found:
            most = max((node.offered(VGPU_RESOURCE) for node in nodes), default=0)
            raise PreflightError(
                f"{parts} tenants need as many places behind a GPU proxy, but {most} are offered ({VGPU_RESOURCE})",
                where=f"node {named}" if named else f"{len(nodes)} usable nodes",
                next_step="kubectl apply -k kubernetes/proxy/gpu (or kubernetes/proxy/software) installs it",
            )
        chosen = min(found, key=lambda node: node.name)
        self._name = chosen.name
        return chosen

    def tenant_size(self, parts: int) -> Size:
        """Return each tenant's share of the node, which is fixed for an experiment."""
        if not self._name:
            self._name = self._any_node().name
        key = (self._name, parts)
        if key not in self._sizes:
            options = self._options
            self._sizes[key] = tenant_size(self.current(), parts, self.others(), options.cpus, options.memory)
        return self._sizes[key]

    def files(self) -> dict[str, str]:
        """Return the applied files."""
        return dict(self._files)

    def put_back(self) -> None:
        """Restore labels and files; safe to call twice."""
        self.offer = None
        self._claim.release()
        if self._plugin is not None:
            self._plugin.remove()

    def close(self, say: Say) -> None:
        """Restore the node at the end; report a failure with the command to run instead of raising."""
        try:
            self.put_back()
        except GputaxError as error:
            say(f"node {self._claim.node} could not be restored ({error.what}): {self._claim.command()}")
        for watch in self._watches.values():
            watch.close()

    def _switch(self, node: NodeFacts, offer: Offer, say: Say) -> None:
        watch = self._watch(node.name)
        since = watch.position()  # before the change, so that no later state is missed
        if offer.config:
            self._add_files(offer)
        if offer.labels:
            words = ", ".join(f"{name}={value}" if value else f"{name}-" for name, value in offer.labels.items())
            say(f"node {node.name}: labels {words}")
            self._claim.take(node, offer.labels)
            self._files["kubernetes/node-labels-before.json"] = json.dumps(self._claim.before, indent=2)
        # A failure that remains from an earlier attempt does not count.
        stale = [node.label(MIG_STATE_LABEL) == MIG_FAILED]

        def missing(seen: NodeFacts) -> str:
            failed = failure(seen, offer)
            stale[0] = stale[0] and bool(failed)
            if failed and not stale[0]:
                raise PreflightError(
                    f"{offer.technique} could not be enabled: {failed}",
                    where=f"node {node.name}",
                    next_step=f"{self._kubectl('describe', 'node', node.name)}; the MIG manager's log has the reason",
                )
            return "; ".join(unmet(seen, offer))

        words = watch.wait_for(missing, since, self._options.ready_timeout_s, say)
        if words:
            raise self._never(node, offer, words)

    def _add_files(self, offer: Offer) -> None:
        if self._plugin is None:
            self._plugin = PluginFiles(self._cluster, find_place(self._cluster, self._options.plugin_config))
        applied = self._plugin.add(offer.config)
        if applied is not None:
            self._files["kubernetes/device-plugin-config.yaml"] = as_yaml(applied)

    def _take_over(self, node: NodeFacts, say: Say) -> None:
        """Raise if another run uses the node; take over from a killed run, so that its labels are restored."""
        if self._claim.held:
            return
        gone = self._claim.left_by_a_killed_run(node)
        if gone is not None:
            say(f"node {node.name}: run {gone.run_id} was killed here; its original labels will be restored")
            self._claim.adopt(node)
            self._pods.remove_left(gone.run_id)
        elif BEFORE in node.annotations:
            self._claim.adopt(node)

    def _chosen(self, wish: Wish) -> tuple[NodeFacts, Offer]:
        nodes = gpu_nodes(self._cluster, self._options.node)
        kept = [node for node in nodes if node.name == self._name]
        # Only GKE needs another node for another technique; elsewhere all cells must use the same device.
        flavour = self._options.sharing_flavour
        if kept and (flavour_of(kept[0]) if flavour == "auto" else flavour) != "gke":
            nodes = kept
        offers = [(node, offer_for(node, wish, flavour)) for node in nodes]
        return next(((node, offer) for node, offer in offers if not offer.refusal), offers[0])

    def _any_node(self) -> NodeFacts:
        """Return a node for tenants without their own GPU."""
        if self._options.node:
            return gpu_nodes(self._cluster, self._options.node)[0]
        usable = [node for node in listed_nodes(self._cluster) if node.usable]
        if not usable:
            raise PreflightError("no node is ready", next_step="kubectl get nodes")
        return min(usable, key=lambda node: node.name)

    def _watch(self, name: str) -> NodeWatch:
        if name not in self._watches:
            self._watches[name] = NodeWatch(self._cluster, name, self._pods.clock)
        return self._watches[name]

    def _never(self, node: NodeFacts, offer: Offer, words: str) -> PreflightError:
        plugin = self._plugin.place.namespace if self._plugin else "kube-system"
        reason = self._plugin_words(plugin, node.name)
        return PreflightError(
            f"{offer.technique} was not offered within {self._options.ready_timeout_s} s: {words}"
            + (f". {reason}" if reason else ""),
            where=f"node {node.name}",
            next_step=f"{self._kubectl('-n', plugin, 'get', 'pods', '-o', 'wide')} (device plugin, feature discovery, "
            "MPS control daemon); for a slow node raise --ready-timeout",
        )

    def _plugin_words(self, namespace: str, node: str) -> str:
        """Return why the plugin's pods on the node are waiting, as reported by the cluster."""
        with contextlib.suppress(GputaxError):
            for each in self._cluster.list("Pod", namespace=namespace):
                state = state_of(each)
                if state.node in ("", node) and state.phase in ("waiting", "stuck"):
                    return f"Pod {each['metadata']['name']}: {state.words}"
        return ""

    def _kubectl(self, *words: str) -> str:
        return self._cluster.kubectl(*words, namespaced=False)
