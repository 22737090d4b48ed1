"""`k8s`, shared: switch a node's GPU to a technique, run tenants as pods there, and restore the node."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Sequence
from typing import Any

from gputax.environments.environment import Described, Evidence
from gputax.environments.kubernetes import Kubernetes, KubernetesProxy
from gputax.errors import GputaxError, PreflightError, UsageError
from gputax.kubernetes.nodes import NodeFacts
from gputax.kubernetes.objects import VGPU_RESOURCE
from gputax.kubernetes.pods import uninterrupted
from gputax.kubernetes.watch import Clock
from gputax.plan.cells import Setup
from gputax.plan.driver import driver_choice
from gputax.plan.engines import parse_engine, waiting_passively
from gputax.plan.options import EnvironmentOptions
from gputax.plan.shares import EQUAL_WITHIN, Asked
from gputax.plan.techniques import Entitlement, Technique
from gputax.sharing.evidence import proxy_group_evidence, technique_evidence
from gputax.sharing.flavours import replicas_for
from gputax.sharing.fraction import FRACTION, asked_of, offer_to
from gputax.sharing.kubernetes.node import SharingNode
from gputax.sharing.kubernetes.tenant_pods import TenantPods, TenantShape
from gputax.sharing.offer import BEHIND_THE_PROXY, Offer, whole_percent
from gputax.sharing.place import Say, Switched, Tenant

MPS = "mps"


class KubernetesShared:
    """One GPU node of a cluster, for one experiment."""

    name = "k8s"

    def __init__(self, options: EnvironmentOptions, say: Say = lambda text: None, clock: Clock | None = None) -> None:
        self._options = options
        self._say = say
        self._pods = TenantPods(options.context, options.namespace, say, clock=clock)
        self._node = SharingNode(self._pods, options)
        self._switched: tuple[str, int] | None = None
        self._asked_for: tuple[str, tuple[float, ...]] | None = None
        self._environments: dict[tuple[str, int, Setup], Kubernetes] = {}
        """Kept across cells: an environment kills what its earlier workers may have left in the pod."""
        self._unequal = False
        """Tenants of MPS will ask for unequal shares, so each must lower its cap."""
        self._of_tenants: dict[int, Offer] = {}
        """What tenants that asked for shares have of the latest cell, where it is not what all have."""
        self._kept: dict[str, str] = {}
        self._closed = False

    def impossible(self, technique: Technique, setup: Setup) -> PreflightError | None:
        """Raise for contradictory options; what the cluster cannot offer is known only when it is switched."""
        if technique.name == "proxy" and not driver_choice(setup).needed:
            raise UsageError(
                "the GPU proxy forwards the CUDA driver API, which "
                f"the engine {parse_engine(setup.engine).name} does not use",
                where="technique proxy",
                next_step="use --engine tinygrad or --workload micro:operation, in a separate command",
            )
        return None

    def switch(self, technique: Technique, parts: int, say: Say) -> Switched:
        """Switch the node to the technique and return when it offers it."""
        started = time.monotonic()
        if self._switched != (technique.name, parts):
            self._pods.empty()
            self._environments.clear()
        self._switched = None
        if technique.name == "proxy":
            self._node.put_back()
            node = self._node.with_places(parts)
            facts: dict[str, Any] = {"node": node.name, "places": node.offered(VGPU_RESOURCE)}
        else:
            offer = self._node.bring_to(technique.name, parts, say)
            facts = {**self._node.current().kept(), **offer.limits()}
        self._switched = (technique.name, parts)
        self._kept[f"kubernetes/node-{technique.name}.json"] = json.dumps(facts, indent=2)
        return Switched(time.monotonic() - started, facts)

    def tenants(self, technique: Technique, count: int, parts: int, setup: Setup) -> list[Tenant]:
        """Return the tenants: pods of the same size, however many; each is created when its worker starts."""
        if count > parts:
            raise UsageError(
                f"{count} tenants, but the device has only {parts} parts", next_step=f"use --slices {count}"
            )
        self.impossible(technique, setup)
        self._of_tenants = {}
        size = self._node.tenant_size(parts)
        threads = setup.threads or max(1, size.cpus if not size.millicpus else size.millicpus // 1000)
        setup = dataclasses.replace(setup, threads=threads, engine=waiting_passively(setup.engine))
        node = self._node.current().name
        if technique.name == "proxy":
            shapes = [TenantShape(technique.name, number, size, node) for number in _numbers(count)]
            return [self._behind_proxy(shape, setup) for shape in shapes]
        offer = self._offer(technique)
        return [
            self._tenant(technique, TenantShape(technique.name, number, size, node, offer), setup, offer.entitlement)
            for number in _numbers(count)
        ]

    def refuse_shares(self, technique: Technique, shares: Sequence[float], setup: Setup) -> None:
        """Raise UsageError for unequal shares of a technique that gives every tenant the same."""
        self.impossible(technique, setup)
        if technique.name == FRACTION or max(shares) - min(shares) <= EQUAL_WITHIN:
            return
        if technique.name == MPS:
            refuse_above_the_plugins_cap(shares)
            self._unequal = True
        else:
            raise UsageError(
                f"{technique.name} gives every tenant of a node the same share",
                where=f"technique {technique.name}",
                next_step=f"use --shares 1/{len(shares)}, or --tech {FRACTION} with HAMi, volcano-vgpu or KAI",
            )

    def asking(self, technique: Technique, shares: Sequence[float], setup: Setup) -> list[Tenant]:
        """Return pods that ask for these shares; those of other shares are deleted first, because they hold theirs."""
        if self._asked_for != (technique.name, tuple(shares)):
            self._pods.empty()
            self._environments.clear()
        self._asked_for = (technique.name, tuple(shares))
        tenants = self.tenants(technique, len(shares), max(len(shares), self._parts), setup)
        if technique.name == "proxy":
            return [dataclasses.replace(tenant, asked=Asked(None)) for tenant in tenants]
        node, offer = self._node.current(), self._offer(technique)
        if technique.name == MPS and self._unequal and whole_percent(max(shares)) > (offer.sm_percent or 0.0):
            cap = f"caps each tenant at {offer.sm_percent:g} %" if offer.sm_percent else "does not cap SMs"
            raise PreflightError(
                f"{offer.flavour} {cap}, so a tenant cannot ask for {100.0 * max(shares):g} % of them",
                where=f"node {node.name}",
                next_step=f"use --shares 1/{self._parts}, or --sharing-flavour dra",
            )
        size = self._node.tenant_size(self._parts)
        found, self._of_tenants = [], {}
        for number, (share, tenant) in enumerate(zip(shares, tenants, strict=True), start=1):
            own = offer_to(offer, share, node)
            if own != offer:
                self._of_tenants[number] = own
                shape = TenantShape(technique.name, number, size, node.name, own, own.variables)
                self._environments.pop((technique.name, number, tenant.setup), None)
                tenant = self._tenant(technique, shape, tenant.setup, own.entitlement)
            found.append(dataclasses.replace(tenant, asked=asked_of(own, share, node)))
        return found

    @property
    def _parts(self) -> int:
        return self._switched[1] if self._switched else 1

    def evidence(self, technique: Technique, tenants: Sequence[Evidence], described: Sequence[Described]) -> Evidence:
        """Return the evidence for the technique over all tenants."""
        if technique.name == "proxy":
            return proxy_group_evidence(tenants)
        node: NodeFacts = self._node.current()
        others = self._node.others()
        strangers = others.with_gpu if others is not None else ()
        offer = dataclasses.replace(self._offer(technique), of_tenants=self._of_tenants)
        return technique_evidence(offer, node, tenants, described, strangers)

    def files(self) -> dict[str, str]:
        """Return manifests as applied, logs, and the node's facts under each technique."""
        return {**self._pods.files(), **self._node.files(), **self._kept}

    def close(self) -> None:
        """Delete the tenants, restore the node's labels and the plugin's files; signals are ignored."""
        if self._closed:
            return
        self._closed = True
        with uninterrupted():
            self._pods.end_making()
            with contextlib.suppress(GputaxError):
                self._pods.empty()
            self._node.close(self._say)
            self._pods.close()

    def _offer(self, technique: Technique) -> Offer:
        offer = self._node.offer
        if offer is None or offer.technique != technique.name:
            raise UsageError(f"the node was not switched to {technique.name}")
        return offer

    def _tenant(self, technique: Technique, shape: TenantShape, setup: Setup, entitlement: Entitlement) -> Tenant:
        key = (technique.name, shape.number, setup)
        if key not in self._environments:
            name = technique.environment(self.name)
            self._environments[key] = Kubernetes(name, self._pods, self._options, driver_choice(setup), shape.shaped)
        return Tenant(self._environments[key], setup, entitlement)

    def _behind_proxy(self, shape: TenantShape, setup: Setup) -> Tenant:
        key = (shape.technique, shape.number, setup)
        if key not in self._environments:
            environment = KubernetesProxy("k8s+proxy", self._pods, self._options, driver_choice(setup), shape.shaped)
            self._environments[key] = environment
        return Tenant(self._environments[key], setup, BEHIND_THE_PROXY)


def refuse_above_the_plugins_cap(shares: Sequence[float]) -> None:
    """Raise UsageError for a share of MPS above the plugin's cap of 100/N %: a client can only lower its cap."""
    cap = 100 // replicas_for(len(shares))
    if whole_percent(max(shares)) > cap:
        raise UsageError(
            f"the device plugin caps each of {len(shares)} tenants of MPS at {cap} %, and a tenant can only lower "
            f"its cap: {100.0 * max(shares):g} % cannot be asked for",
            where=f"technique {MPS}",
            next_step="use --sharing-flavour dra, where a claim sets the cap; or --tech fraction; "
            f"or shares of at most {cap} % each",
        )


def _numbers(count: int) -> range:
    return range(1, count + 1)
