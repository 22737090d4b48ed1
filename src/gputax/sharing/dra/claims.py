"""The ResourceClaims of one run: made before its pods, read as evidence, and deleted once the pods are gone."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from collections.abc import Callable

from gputax.errors import GputaxError, PreflightError
from gputax.kubernetes.claims import (
    API_VERSION,
    OLDEST_VERSION,
    OWNER,
    ROLE,
    ClaimPlan,
    ClaimState,
    SliceDevice,
    claim_state,
    devices_in,
)
from gputax.kubernetes.client import ForbiddenError, NotFoundError
from gputax.kubernetes.objects import APP, ROLE_LABEL, Manifest
from gputax.kubernetes.pods import GONE_TIMEOUT_S, RunPods, as_yaml
from gputax.sharing.dra.offer import Asked
from gputax.sharing.kubernetes.claim import Owner

Say = Callable[[str], None]
ACCESS = "kubectl apply -k kubernetes/access-dra"
LOOK_S = 0.5


class RunClaims:
    """All ResourceClaims that a run made, in the namespace of its pods."""

    def __init__(self, pods: RunPods, say: Say) -> None:
        self._pods, self._cluster, self._say = pods, pods.cluster, say
        self._owner = Owner(platform.node(), os.getpid(), pods.run_id)
        self._made: dict[str, str] = {}
        """The uid of each claim, by its name."""
        self._making = threading.Lock()
        self._count = 0
        self._looked = False
        self.files: dict[str, str] = {}
        pods.after_pods.append(self.remove)

    def make(self, asked: Asked) -> ClaimState:
        """Create a claim; it gets its device when the first pod that names it is scheduled."""
        with self._making:
            self._remove_left()
            self._count += 1
            name = f"{APP}-{asked.offer.technique}-{self._pods.run_id}-{self._count}"
            plan = ClaimPlan(
                name, self._pods.run_id, self._cluster.namespace, asked.offer.resource, asked.requests,
                asked.selectors, asked.same, asked.parameters, str(self._owner),
            )  # fmt: skip
            self._made[name] = ""  # before it exists, so that an interrupt in between does not leave it behind
            try:
                made = self._cluster.create(plan.manifest())
            except GputaxError as error:
                del self._made[name]
                raise self._explained(error) from error
            self._keep(made)
            state = claim_state(made)
            self._made[name] = state.uid
            self._say(f"created ResourceClaim {name} for {asked.offer.technique}")
            return state

    def made_uid(self, name: str) -> str:
        """Return the uid that a claim had when it was made; empty if it is not ours."""
        return self._made.get(name, "")

    def state(self, name: str) -> ClaimState | None:
        """Return a claim as it is now; None if it does not exist."""
        try:
            found = self._cluster.get("ResourceClaim", name)
        except GputaxError as error:
            raise self._explained(error) from error
        if found is None:
            return None
        self._keep(found)
        return claim_state(found)

    def standing(self, name: str) -> ClaimState:
        """Return a claim that its owner made; raise if there is none."""
        found = self.state(name)
        if found is None or found.ending:
            raise PreflightError(
                f"the ResourceClaim {name} " + ("is being deleted" if found else "does not exist"),
                where=f"namespace {self._cluster.namespace}",
                next_step=self._cluster.kubectl("get", "resourceclaims"),
            )
        return found

    def devices(self) -> list[SliceDevice] | None:
        """Return the devices that NVIDIA's driver publishes; None if we may not read them."""
        try:
            return devices_in(self._cluster.list("ResourceSlice"))
        except ForbiddenError:
            return None
        except GputaxError as error:
            raise self._explained(error) from error

    def remove(self) -> None:
        """Delete our claims and wait until they are gone, because the next claim may need the same GPU."""
        for name in list(self._made):
            with contextlib.suppress(GputaxError):
                self._cluster.delete("ResourceClaim", name)
        deadline = self._pods.clock.now_s() + GONE_TIMEOUT_S
        for name in list(self._made):
            with contextlib.suppress(GputaxError):
                while self._cluster.get("ResourceClaim", name) is not None:
                    if self._pods.clock.now_s() > deadline:
                        command = self._cluster.kubectl("get", "resourceclaim", name, "-o", "yaml")
                        self._say(f"ResourceClaim {name} is still being deleted: {command}")
                        break
                    self._pods.clock.sleep(LOOK_S)
            del self._made[name]

    def not_allocated(self, name: str, error: PreflightError) -> PreflightError:
        """Return a pod's failure with the fate of its claim; unchanged if the claim has its device."""
        with contextlib.suppress(GputaxError):
            found = self._cluster.get("ResourceClaim", name)
            state = claim_state(found) if found is not None else None
            if state is None or state.ending:
                what = f"the ResourceClaim {name} was deleted, so no pod can start with it: {error.what}"
            elif state.allocated:
                return error
            else:
                what = f"the ResourceClaim {name} was never allocated a device: {error.what}"
            return PreflightError(
                what,
                where=error.where,
                next_step=f"{self._cluster.kubectl('describe', 'resourceclaim', name)}; "
                "gputax doctor --env k8s --sharing-flavour dra",
            )
        return error

    def _remove_left(self) -> None:
        """Delete the claims of runs of this machine that were killed."""
        if self._looked:
            return
        self._looked = True
        ours = {"app.kubernetes.io/managed-by": APP, ROLE_LABEL: ROLE}
        try:
            there = self._cluster.list("ResourceClaim", labels=ours)
        except GputaxError as error:
            raise self._explained(error) from error
        for left in there:
            owner = Owner.parse(str((left["metadata"].get("annotations") or {}).get(OWNER) or ""))
            if owner is not None and owner.gone:
                name = str(left["metadata"]["name"])
                self._say(f"deleting ResourceClaim {name}, left by a killed run")
                self._cluster.delete("ResourceClaim", name)

    def _keep(self, claim: Manifest) -> None:
        self.files[f"kubernetes/{claim['metadata']['name']}.yaml"] = as_yaml(claim)

    def _explained(self, error: GputaxError) -> GputaxError:
        if isinstance(error, ForbiddenError):
            return PreflightError(
                error.what, where=error.where, next_step=f"{ACCESS} grants it, in the namespace alone"
            )
        if isinstance(error, NotFoundError) and "could not find the requested resource" in error.what:
            return PreflightError(
                f"this cluster does not serve {API_VERSION}: dynamic resource allocation needs Kubernetes "
                f"{OLDEST_VERSION} or newer",
                where=error.where,
                next_step="use another --sharing-flavour (device-plugin, operator, gke, nos); kubectl api-versions",
            )
        return error
