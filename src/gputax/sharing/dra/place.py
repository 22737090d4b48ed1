"""`k8s`, shared by dynamic resource allocation: each technique is another claim, and no node is changed."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from typing import Any

from gputax.environments.environment import Described, Evidence
from gputax.errors import PreflightError, UsageError
from gputax.kubernetes.claims import SliceDevice
from gputax.kubernetes.client import ForbiddenError
from gputax.kubernetes.nodes import NodeFacts, node_facts
from gputax.kubernetes.objects import PodClaim, Size
from gputax.kubernetes.pods import uninterrupted
from gputax.kubernetes.watch import Clock
from gputax.plan.cells import Setup
from gputax.plan.driver import driver_choice
from gputax.plan.engines import waiting_passively
from gputax.plan.options import EnvironmentOptions
from gputax.plan.shares import EQUAL_WITHIN
from gputax.plan.techniques import Technique
from gputax.sharing.dra.claims import RunClaims
from gputax.sharing.dra.environment import ClaimedKubernetes, owned_claim
from gputax.sharing.dra.evidence import claim_evidence
from gputax.sharing.dra.offer import FLAVOUR, Asked, Choice, asked_for, node_of, offer_of
from gputax.sharing.fraction import asked_of, offer_to
from gputax.sharing.kubernetes.node import others_of_run, tenant_size
from gputax.sharing.kubernetes.tenant_pods import TenantPods, TenantShape
from gputax.sharing.offer import Offer
from gputax.sharing.place import Say, Switched, Tenant, refuse_unequal

MPS = "mps"


class ClaimedShared:
    """The GPU of one ResourceClaim at a time, for one experiment."""

    name = "k8s"

    def __init__(self, options: EnvironmentOptions, say: Say = lambda text: None, clock: Clock | None = None) -> None:
        self._options, self._say = options, say
        self._pods = TenantPods(options.context, options.namespace, say, clock=clock)
        self._claims = RunClaims(self._pods, say)
        self._switched: tuple[str, int] | None = None
        self._asked: Asked | None = None
        self._claim: PodClaim | None = None
        self._devices: list[SliceDevice] | None = None
        self._gpu = ""
        self._most = 0.0
        """The largest of unequal shares of MPS, which the claim's cap must allow."""
        self._asked_for: tuple[str, tuple[float, ...]] | None = None
        self._of_tenants: dict[int, Offer] = {}
        self._environments: dict[tuple[str, int, Setup], ClaimedKubernetes] = {}
        self._latest: list[ClaimedKubernetes] = []
        self._size: dict[int, Size] = {}
        self._kept: dict[str, str] = {}
        self._closed = False

    def impossible(self, technique: Technique, setup: Setup) -> PreflightError | None:
        """Raise for a technique that no claim can ask for."""
        if technique.name == "proxy":
            raise UsageError(
                f"the GPU proxy is not offered by --sharing-flavour {FLAVOUR}",
                next_step="measure the technique proxy in a separate command, without --sharing-flavour",
            )
        return None

    def switch(self, technique: Technique, parts: int, say: Say) -> Switched:
        """Make the technique's claim; its device is allocated when the first tenant is scheduled."""
        started = time.monotonic()
        self._drop()
        self._devices = self._claims.devices()
        self._make(technique.name, parts)
        self._switched = (technique.name, parts)
        facts = self._facts()
        self._kept[f"kubernetes/claim-{technique.name}.json"] = json.dumps(facts, indent=2)
        return Switched(time.monotonic() - started, facts)

    def tenants(self, technique: Technique, count: int, parts: int, setup: Setup) -> list[Tenant]:
        """Return the tenants: pods of the same size that name the claim; each is created when its worker starts."""
        if count > parts:
            raise UsageError(
                f"{count} tenants, but the device has only {parts} parts", next_step=f"use --slices {count}"
            )
        self._of_tenants = {}
        return self._tenants(technique, count, parts, setup)

    def _tenants(self, technique: Technique, count: int, parts: int, setup: Setup) -> list[Tenant]:
        self._offer(technique)
        self._renew(technique.name, parts)
        size = self._tenant_size(parts)
        threads = setup.threads or max(1, size.cpus if not size.millicpus else size.millicpus // 1000)
        setup = dataclasses.replace(setup, threads=threads, engine=waiting_passively(setup.engine))
        self._latest = [self._environment(technique, number, size, setup) for number in range(1, count + 1)]
        entitlements = [self._own(technique, number).entitlement for number in range(1, count + 1)]
        return [Tenant(each, setup, mine) for each, mine in zip(self._latest, entitlements, strict=True)]

    def refuse_shares(self, technique: Technique, shares: Sequence[float], setup: Setup) -> None:
        """Raise UsageError for unequal shares, except of MPS: its claim then has the cap of the largest one."""
        self.impossible(technique, setup)
        unequal = max(shares) - min(shares) > EQUAL_WITHIN
        if technique.name == MPS and unequal and self._options.resource_claim:
            raise UsageError(
                "the caps of a claim of yours are not known before a tenant has it, so unequal shares of it cannot "
                "be asked for",
                where=f"--resource-claim {self._options.resource_claim}",
                next_step=f"omit --resource-claim, or use --shares 1/{len(shares)}",
            )
        if technique.name != MPS:
            refuse_unequal(technique, shares, "mps")
        self._most = max(shares) if technique.name == MPS and unequal else self._most

    def asking(self, technique: Technique, shares: Sequence[float], setup: Setup) -> list[Tenant]:
        """Return pods that ask for these shares; those of other shares are deleted first, because they hold theirs."""
        if self._asked_for != (technique.name, tuple(shares)):
            self._pods.empty()
            self._environments.clear()
        self._asked_for = (technique.name, tuple(shares))
        offer, node = self._offer(technique), node_of(self._options.node, self._device())
        self._of_tenants = {
            number: own
            for number, share in enumerate(shares, start=1)
            if (own := offer_to(offer, share, node)) != offer
        }
        parts = max(len(shares), self._switched[1] if self._switched else 1)
        tenants = self._tenants(technique, len(shares), parts, setup)
        asked = [asked_of(self._own(technique, number), share, node) for number, share in enumerate(shares, start=1)]
        return [dataclasses.replace(tenant, asked=each) for tenant, each in zip(tenants, asked, strict=True)]

    def evidence(self, technique: Technique, tenants: Sequence[Evidence], described: Sequence[Described]) -> Evidence:
        """Return the evidence from the claims, the ResourceSlices and the tenants' own reports."""
        claimed = [each.claimed(number) for number, each in enumerate(self._latest, start=1)]
        offer = dataclasses.replace(self._offer(technique), of_tenants=self._of_tenants)
        proof = claim_evidence(offer, claimed, self._devices, tenants, described)
        self._pin(claimed[0].devices[0].identity if claimed and claimed[0].devices else "", described)
        return proof

    def files(self) -> dict[str, str]:
        """Return manifests as applied, logs, and the claims."""
        return {**self._pods.files(), **self._claims.files, **self._kept}

    def close(self) -> None:
        """Delete the tenants and then the claims; signals are ignored."""
        if self._closed:
            return
        self._closed = True
        with uninterrupted():
            self._pods.close()

    def _drop(self) -> None:
        self._pods.empty()
        self._environments.clear()
        self._claims.remove()
        self._asked = self._claim = self._switched = None

    def _make(self, technique: str, parts: int) -> None:
        options = self._options
        most = self._most if technique == MPS else 0.0
        choice = Choice(options.mig_profile, options.time_slice, options.node, self._gpu, self._devices, most)
        if options.resource_claim:
            self._claim = owned_claim(options.resource_claim)
            if self._claim.template:
                self._asked = asked_for(technique, parts, choice)
            else:
                self._asked = Asked(offer_of(self._claims.standing(self._claim.name), technique))
            return
        self._asked = asked_for(technique, parts, choice)
        self._claim = PodClaim(self._claims.make(self._asked).name)

    def _renew(self, technique: str, parts: int) -> None:
        """Make another claim if somebody deleted ours between two cells; pods of the old one cannot stay."""
        claim = self._claim
        if claim is None or self._options.resource_claim:
            return
        state = self._claims.state(claim.name)
        if state is None or state.ending:
            self._say(f"ResourceClaim {claim.name} was deleted; creating another")
            self._drop()
            self._make(technique, parts)
            self._switched = (technique, parts)

    def _offer(self, technique: Technique) -> Offer:
        if self._asked is None or self._asked.offer.technique != technique.name:
            raise UsageError(f"no claim was made for {technique.name}")
        return self._asked.offer

    def _own(self, technique: Technique, number: int) -> Offer:
        return self._of_tenants.get(number) or self._offer(technique)

    def _device(self) -> SliceDevice | None:
        """Return a whole GPU that the claims may get: the one of earlier cells, or the smallest."""
        whole = [each for each in self._devices or () if each.kind != "mig" and self._gpu in ("", each.gpu)]
        return min(whole, key=lambda each: each.memory_mb or 0.0, default=None)

    def _environment(self, technique: Technique, number: int, size: Size, setup: Setup) -> ClaimedKubernetes:
        key = (technique.name, number, setup)
        if key not in self._environments:
            asked, claim = self._asked, self._claim
            assert asked is not None
            assert claim is not None
            variables = self._own(technique, number).variables
            shape = TenantShape(technique.name, number, size, self._options.node, variables=variables)
            request = "" if claim.template or self._options.resource_claim else asked.request_of(number)
            named = dataclasses.replace(claim, request=request)
            self._environments[key] = ClaimedKubernetes(
                technique.environment(self.name), self._pods, self._options, driver_choice(setup), self._claims,
                lambda: named, shape.shaped,
            )  # fmt: skip
        return self._environments[key]

    def _tenant_size(self, parts: int) -> Size:
        """Return each tenant's size: as requested, or an equal share of the node if we may read it."""
        options = self._options
        if parts not in self._size:
            node = None if options.cpus else self._node()
            if node is None:
                self._size[parts] = Size(options.cpus, options.memory)
            else:
                others = others_of_run(self._pods.cluster, node.name, self._pods.run_id)
                self._size[parts] = tenant_size(node, parts, others, options.cpus, options.memory)
        return self._size[parts]

    def _node(self) -> NodeFacts:
        try:
            nodes = [node_facts(each) for each in self._pods.cluster.list("Node")]
        except ForbiddenError as error:
            raise PreflightError(
                "the size of a tenant is unknown: not permitted to list nodes",
                where=error.where,
                next_step="use --cpus, e.g. --cpus 1, and --memory",
            ) from error
        with_device = {each.node for each in self._devices or ()}
        wanted = {self._options.node} if self._options.node else with_device
        found = sorted((each for each in nodes if each.usable and (not wanted or each.name in wanted)),
                       key=lambda each: each.name)  # fmt: skip
        if not found:
            raise PreflightError("no usable node has a device of the driver", next_step="kubectl get nodes")
        return found[0]

    def _pin(self, identity: str, described: Sequence[Described]) -> None:
        """Remember the GPU, so that later claims ask for the same one."""
        published = next((each for each in self._devices or () if each.identity == identity), None)
        seen = [str(gpu["uuid"]) for each in described for gpu in each.gpus if gpu.get("uuid")]
        self._gpu = self._gpu or (published.gpu if published else "") or (seen[0] if seen else "")

    def _facts(self) -> dict[str, Any]:
        assert self._asked is not None
        assert self._claim is not None
        return {
            "claim": self._claim.name,
            "parameters": dict(self._asked.parameters),
            "selectors": list(self._asked.selectors),
            **self._asked.offer.limits(),
        }
