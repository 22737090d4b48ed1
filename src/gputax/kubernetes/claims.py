"""Objects of dynamic resource allocation (`resource.k8s.io/v1`): the claims that pods name, and what was allocated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gputax.kubernetes.nodes import quantity
from gputax.kubernetes.objects import Manifest, labels
from gputax.kubernetes.permissions import Permission

GROUP = "resource.k8s.io"
API_VERSION = f"{GROUP}/v1"
OLDEST_VERSION = "1.34"
"""The first Kubernetes with `resource.k8s.io/v1`."""
# NVIDIA's driver: its name, its classes of devices, and the kind of its parameters.
DRIVER = "gpu.nvidia.com"
GPU_CLASS, MIG_CLASS = DRIVER, "mig.nvidia.com"
PARAMETERS = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
INTERVALS = ("Default", "Short", "Medium", "Long")
REQUEST = "gpu"
"""The name of the only request of a claim for a whole GPU."""
ROLE = "claim"
OWNER = "gputax.dev/claim-owner"
# NVIDIA's driver names a device after the minor number of its node: gpu-0 is /dev/nvidia0; gpu-0-mig-… is a slice.
_MINOR = re.compile(r"gpu-(\d+)(?:-mig-.*)?")

PERMISSIONS: tuple[Permission, ...] = (
    Permission("create", "resourceclaims", "make the claim that the pods name", group=GROUP),
    Permission("get", "resourceclaims", "read which device it got and which pods it is reserved for", group=GROUP),
    Permission("list", "resourceclaims", "find claims left by a killed run", group=GROUP),
    Permission("delete", "resourceclaims", "delete it afterwards", group=GROUP),
)


@dataclass(frozen=True)
class ClaimPlan:
    """One ResourceClaim to make: so many devices of a class, all of one GPU, with the driver's parameters."""

    name: str
    run_id: str
    namespace: str
    device_class: str = GPU_CLASS
    requests: Sequence[str] = (REQUEST,)
    """One device each; a tenant of a partitioned GPU names its own request."""
    selectors: Sequence[str] = ()
    """CEL expressions on a device."""
    same: str = ""
    """The attribute that all devices must have in common."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The driver's opaque parameters; empty: its defaults."""
    owner: str = ""

    def manifest(self) -> Manifest:
        """Return the object."""
        exactly: Manifest = {"deviceClassName": self.device_class}
        if self.selectors:
            exactly["selectors"] = [{"cel": {"expression": each}} for each in self.selectors]
        devices: Manifest = {"requests": [{"name": name, "exactly": dict(exactly)} for name in self.requests]}
        if self.same and len(self.requests) > 1:
            devices["constraints"] = [{"requests": list(self.requests), "matchAttribute": self.same}]
        if self.parameters:
            opaque = {"driver": DRIVER, "parameters": dict(self.parameters)}
            devices["config"] = [{"requests": list(self.requests), "opaque": opaque}]
        return {
            "apiVersion": API_VERSION,
            "kind": "ResourceClaim",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": labels(self.run_id, ROLE),
                **({"annotations": {OWNER: self.owner}} if self.owner else {}),
            },
            "spec": {"devices": devices},
        }


def time_slicing_parameters(interval: str) -> Manifest:
    """Return the parameters that set the length of a time slice."""
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}
    return {**PARAMETERS, "sharing": sharing}


def mps_parameters(percent: int, memory_mb: float | None) -> Manifest:
    """Return the parameters of an MPS daemon that caps each client's SMs and, if the size is known, its memory."""
    config: Manifest = {"defaultActiveThreadPercentage": percent}
    if memory_mb:
        config["defaultPinnedDeviceMemoryLimit"] = f"{int(memory_mb)}Mi"
    return {**PARAMETERS, "sharing": {"strategy": "MPS", "mpsConfig": config}}


@dataclass(frozen=True)
class Allocated:
    """One device that a claim got."""

    request: str
    driver: str
    pool: str
    device: str
    share: str = ""
    """The id of a share of a device that several claims may have."""

    @property
    def identity(self) -> str:
        """The device's name in the cluster, without the share."""
        return f"{self.driver}/{self.pool}/{self.device}"

    @property
    def minor(self) -> str:
        """The minor number in the device's name; empty if the driver names it otherwise."""
        found = _MINOR.fullmatch(self.device)
        return found[1] if found else ""


@dataclass(frozen=True)
class Holder:
    """Something that a claim is reserved for."""

    resource: str
    name: str
    uid: str


@dataclass(frozen=True)
class ClaimState:
    """A ResourceClaim as the API server shows it."""

    name: str
    uid: str
    allocated: tuple[Allocated, ...] = ()
    holders: tuple[Holder, ...] = ()
    parameters: tuple[Mapping[str, Any], ...] = ()
    """The driver's parameters: those of the allocation, or before it those that are asked for."""
    ending: bool = False
    """Deleted; it stays until the last pod has ended."""
    node: str = ""

    def facts(self) -> dict[str, Any]:
        """Return what is stored as evidence."""
        return {
            "claim": self.name,
            "uid": self.uid,
            "devices": [{"request": each.request, "device": each.identity, "share": each.share or None}
                        for each in self.allocated],
            "reserved_for": [each.name for each in self.holders],
            "parameters": [dict(each) for each in self.parameters],
        }  # fmt: skip

    @property
    def sharing(self) -> Mapping[str, Any]:
        """The way of sharing that the driver's parameters ask for; empty without one."""
        return next((each["sharing"] for each in self.parameters if each.get("sharing")), {})


def claim_state(claim: Manifest) -> ClaimState:
    """Read a ResourceClaim; pure."""
    metadata, spec, status = (claim.get(key) or {} for key in ("metadata", "spec", "status"))
    allocation = status.get("allocation") or {}
    devices = allocation.get("devices") or {}
    configured = devices.get("config") if allocation else (spec.get("devices") or {}).get("config")
    return ClaimState(
        str(metadata.get("name") or ""),
        str(metadata.get("uid") or ""),
        tuple(
            Allocated(
                # A request with alternatives is named REQUEST/ALTERNATIVE.
                str(each.get("request") or "").partition("/")[0],
                str(each.get("driver") or ""),
                str(each.get("pool") or ""),
                str(each.get("device") or ""),
                str(each.get("shareID") or ""),
            )
            for each in devices.get("results") or ()
        ),
        tuple(
            Holder(str(each.get("resource") or ""), str(each.get("name") or ""), str(each.get("uid") or ""))
            for each in status.get("reservedFor") or ()
        ),
        tuple(
            each["opaque"].get("parameters") or {}
            for each in configured or ()
            if (each.get("opaque") or {}).get("driver") == DRIVER
        ),
        bool(metadata.get("deletionTimestamp")),
        _node(allocation.get("nodeSelector") or {}),
    )


def _node(selector: Mapping[str, Any]) -> str:
    """Return the only node that a selector admits; empty if it admits several."""
    terms = selector.get("nodeSelectorTerms") or ()
    fields = [field for term in terms for field in term.get("matchFields") or ()]
    values = [value for each in fields if each.get("key") == "metadata.name" for value in each.get("values") or ()]
    return str(values[0]) if len(values) == 1 and len(terms) == 1 else ""


def claims_of(pod: Manifest) -> list[tuple[str, str]]:
    """Return each claim of a pod's first container: its name in the cluster, and the request or `` for all of them."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    made = {each.get("name"): each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()}
    names = {
        each.get("name"): each.get("resourceClaimName") or made.get(each.get("name"))
        for each in spec.get("resourceClaims") or ()
    }
    container: Mapping[str, Any] = next(iter(spec.get("containers") or ()), {})
    asked = (container.get("resources") or {}).get("claims") or ()
    return [(str(names.get(each.get("name")) or ""), str(each.get("request") or "")) for each in asked]


@dataclass(frozen=True)
class SliceDevice:
    """A device that a driver publishes in a ResourceSlice."""

    identity: str
    node: str = ""
    kind: str = ""
    """`gpu` or `mig`."""
    uuid: str = ""
    profile: str = ""
    parent: str = ""
    """The UUID of a partition's GPU."""
    product: str = ""
    memory_mb: float | None = None

    @property
    def gpu(self) -> str:
        """The UUID of the GPU that it is, or is a part of."""
        return self.parent or self.uuid


def devices_in(slices: Iterable[Manifest], driver: str = DRIVER) -> list[SliceDevice]:
    """Return the devices of a driver, of the newest generation of each pool; pure."""
    specs = [each.get("spec") or {} for each in slices]
    specs = [each for each in specs if each.get("driver") == driver]
    newest: dict[str, int] = {}
    for each in specs:
        pool, generation = _pool(each)
        newest[pool] = max(newest.get(pool, 0), generation)
    current = [each for each in specs if _pool(each)[1] == newest[_pool(each)[0]]]
    return [_device(device, driver, each) for each in current for device in each.get("devices") or ()]


def _pool(spec: Manifest) -> tuple[str, int]:
    pool = spec.get("pool") or {}
    return str(pool.get("name") or ""), int(pool.get("generation") or 0)


def _device(device: Manifest, driver: str, spec: Manifest) -> SliceDevice:
    attributes = {_short(name): _value(value) for name, value in (device.get("attributes") or {}).items()}
    capacity = {_short(name): each.get("value") for name, each in (device.get("capacity") or {}).items()}
    memory = quantity(str(capacity["memory"])) / 2**20 if capacity.get("memory") else None
    return SliceDevice(
        f"{driver}/{_pool(spec)[0]}/{device.get('name')}",
        str(spec.get("nodeName") or device.get("nodeName") or ""),
        attributes.get("type", ""),
        attributes.get("uuid", ""),
        attributes.get("profile", ""),
        attributes.get("parentUUID", ""),
        attributes.get("productName", ""),
        memory,
    )


def _short(name: str) -> str:
    """Return a name without its domain, which is the driver's if it is left out."""
    return name.rpartition("/")[2]


def _value(attribute: Mapping[str, Any]) -> str:
    return str(next((value for value in attribute.values() if value is not None), ""))
