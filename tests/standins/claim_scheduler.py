"""The scheduler of the stand-in API server, as far as claims go: allocates devices and reserves them for pods."""

from __future__ import annotations

import json
from typing import Any

from e2e.dra_devices import DRIVER, slices
from tests.standins.kube_api import KubeApi

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/gputax/resourceclaims"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
NODE = "gpu-1"


class ClaimScheduler:
    """Gives each claim the first free device that fits; `fault` makes it misbehave.

    `never`: no claim is allocated, and its pod stays Pending. `stranger`: a pod of somebody else holds each claim too.
    """

    def __init__(self, api: KubeApi, gpus: int = 1, fault: str = "") -> None:
        self.api, self.fault = api, fault
        self._seen: set[str] = set()
        api.plays_pods = fault != "never"
        self.devices = [each for part in slices(gpus, NODE, 1) for each in part["spec"].get("devices", ())]
        for each in slices(gpus, NODE, 1):
            api.objects[f"{SLICES}/{each['metadata']['name']}"] = json.loads(json.dumps(each))
        api.on_change = self.changed

    def claims(self) -> list[dict[str, Any]]:
        """Return the claims that there are."""
        return [each for path, each in self.api.objects.items() if path.startswith(CLAIMS)]

    def changed(self, path: str, live: dict[str, Any]) -> None:
        """See a write of the API server."""
        if "/pods/" not in path or not live["spec"].get("resourceClaims") or path in self._seen:
            return
        self._seen.add(path)
        live["spec"]["nodeName"] = NODE
        (asked,) = live["spec"]["resourceClaims"]
        if self.fault == "never":
            live["status"] = {"phase": "Pending", "conditions": [CANNOT]}
            self.api.tell("MODIFIED", path)
            return
        name = asked.get("resourceClaimName")
        if name is None:
            name = f"{live['metadata']['name']}-gpu"
            live["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": name}]
            spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}}
            metadata = {"name": name, "namespace": "gputax", "uid": f"uid-{name}"}
            self.api.objects[f"{CLAIMS}/{name}"] = {
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec,
            }  # fmt: skip
        claim = self.api.objects[f"{CLAIMS}/{name}"]
        status = claim.setdefault("status", {})
        if "allocation" not in status:
            status["allocation"] = {"devices": self._allocated(claim["spec"]["devices"])}
        holders = status.setdefault("reservedFor", [])
        if self.fault == "stranger" and not holders:
            holders.append({"resource": "pods", "name": "stranger", "uid": "uid-stranger"})
        holders.append({"resource": "pods", "name": live["metadata"]["name"], "uid": live["metadata"]["uid"]})
        self.api.tell("MODIFIED", path)

    def _allocated(self, asked: dict[str, Any]) -> dict[str, Any]:
        taken = {
            result["device"]
            for each in self.claims()
            for result in each.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
        }
        results = []
        for request in asked["requests"]:
            mig = request["exactly"]["deviceClassName"] == "mig.nvidia.com"
            free = [
                each["name"]
                for each in self.devices
                if ("profile" in each["attributes"]) == mig
                and each["name"] not in taken
                and all(f"'{value}'" in self._wanted(request) for value in self._named(each, request))
            ]
            taken.add(free[0])
            results.append({"request": request["name"], "driver": DRIVER, "pool": NODE, "device": free[0]})
        config = [{"source": "FromClaim", **each} for each in asked.get("config", ())]
        return {"results": results, **({"config": config} if config else {})}

    @staticmethod
    def _wanted(request: dict[str, Any]) -> str:
        return " ".join(each["cel"]["expression"] for each in request["exactly"].get("selectors", ()))

    def _named(self, device: dict[str, Any], request: dict[str, Any]) -> list[str]:
        """Return those values of a device's attributes that the request's selectors name."""
        wanted = self._wanted(request)
        return [value["string"] for name, value in device["attributes"].items() if f".{name} ==" in wanted]


CANNOT = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available: 1 cannot allocate all claims.",
}
