"""`k8s`, `k8s+time-slicing`, `k8s+mps`, `k8s+mig` with `--sharing-flavour dra`: the worker's pod names a claim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gputax.environments.environment import Described, Evidence
from gputax.environments.kubernetes import Kubernetes
from gputax.environments.process import ChildProcess
from gputax.errors import PreflightError
from gputax.kubernetes.claims import SliceDevice, claims_of
from gputax.kubernetes.objects import PodClaim, PodPlan
from gputax.kubernetes.pods import RunPods
from gputax.plan.driver import DriverChoice
from gputax.plan.environment import EnvironmentName
from gputax.plan.options import EnvironmentOptions
from gputax.sharing.dra.claims import RunClaims
from gputax.sharing.dra.evidence import Claimed, claim_evidence
from gputax.sharing.dra.offer import Asked, Choice, asked_for, offer_of
from gputax.sharing.offer import Offer

TEMPLATE = "template/"
# A tenant of `run` is alone; MPS caps it as if one other were there.
PARTS_OF_A_RUN = 2


def owned_claim(text: str) -> PodClaim:
    """Return the claim of --resource-claim: NAME, or template/NAME for a claim of its own for each pod."""
    return PodClaim(text.removeprefix(TEMPLATE), template=text.startswith(TEMPLATE))


class ClaimedKubernetes(Kubernetes):
    """Starts workers in a pod that gets its device by a ResourceClaim."""

    def __init__(
        self,
        name: str,
        pods: RunPods,
        options: EnvironmentOptions,
        driver: DriverChoice | None,
        claims: RunClaims,
        claim: Callable[[], PodClaim],
        shaped: Callable[[PodPlan], PodPlan] = lambda plan: plan,
    ) -> None:
        """Take the claim as a function, because it is made only when the first worker starts."""
        self._claims, self._claim_of_pod = claims, claim
        self._claim: PodClaim | None = None
        self._shape = shaped
        super().__init__(name, pods, options, driver, self._claimed)
        self.note = ""  # the device comes with the claim, though no GPU is counted

    def start(self) -> ChildProcess:
        """Start a worker; a pod that waits for its claim in vain fails with the claim's fate."""
        self._claim = self._claim_of_pod()
        try:
            return super().start()
        except PreflightError as error:
            if self._claim.template:
                raise
            raise self._claims.not_allocated(self._claim.name, error) from error

    def claimed(self, number: int = 1) -> Claimed:
        """Return what the pod has of its claim now."""
        pod = self._pods.current(self._pod.name) if self._pod is not None else {}
        uid = str((pod.get("metadata") or {}).get("uid") or "")
        name, request = next(iter(claims_of(pod)), ("", ""))
        state = self._claims.state(name) if name else None
        return Claimed(number, uid, state, name, request, self._claims.made_uid(name))

    def _claimed(self, plan: PodPlan) -> PodPlan:
        # A device by a claim is not an extended resource too.
        shaped = self._shape(plan)
        return replace(shaped, size=replace(shaped.size, gpus=0), claim=self._claim)

    def _variables(self) -> dict[str, str]:
        return self._variables_for(gpus=1)


class ClaimedRun(ClaimedKubernetes):
    """One worker alone on its device, as `run` and `duet` start it."""

    def __init__(
        self, name: str, pods: RunPods, options: EnvironmentOptions, driver: DriverChoice | None = None
    ) -> None:
        self._technique = EnvironmentName.parse(name).sharing_layer or "exclusive"
        self._offer: Offer | None = None
        super().__init__(name, pods, options, driver, RunClaims(pods, pods.say), self._standing)
        self._made: PodClaim | None = None

    def evidence(self, described: Described) -> Evidence:
        """Compare the worker's view of its device with its claim after the load."""
        own = super().evidence(described)
        if self._offer is None or self._pod is None:
            return own
        proof = claim_evidence(self._offer, [self.claimed()], self._claims.devices(), [own], [described])
        warning = {"warning": proof.warning} if proof.warning else {}
        layer = proof.layer if self._technique != "exclusive" else own.layer
        return Evidence.of(layer, proof.reasons, {**warning, **own.facts, "technique": proof.facts})

    def _standing(self) -> PodClaim:
        if self._made is not None and self._still_there(self._made):
            return self._made
        if self._options.resource_claim:
            claim = owned_claim(self._options.resource_claim)
            if claim.template:
                self._offer = self._asked(self._claims.devices()).offer
            else:
                self._offer = offer_of(self._claims.standing(claim.name), self._technique)
        else:
            asked = self._asked(self._claims.devices())
            claim = PodClaim(self._claims.make(asked).name, asked.request_of(1))
            self._offer = asked.offer
        self._made = claim
        return claim

    def _still_there(self, claim: PodClaim) -> bool:
        if claim.template:
            return True
        state = self._claims.state(claim.name)
        return state is not None and not state.ending

    def _asked(self, devices: list[SliceDevice] | None) -> Asked:
        options = self._options
        choice = Choice(options.mig_profile, options.time_slice, options.node, devices=devices)
        return asked_for(self._technique, PARTS_OF_A_RUN if self._technique == "mps" else 1, choice)
