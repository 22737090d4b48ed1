"""Check what a pod needs that gets its device by a ResourceClaim: the API, rights, the driver's classes and devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from gputax.doctor.finding import Finding
from gputax.errors import GputaxError
from gputax.kubernetes.claims import (
    API_VERSION,
    DRIVER,
    GPU_CLASS,
    MIG_CLASS,
    OLDEST_VERSION,
    PERMISSIONS,
    devices_in,
)
from gputax.kubernetes.client import Cluster, ForbiddenError, NotFoundError

INSTALL = "make install-nvidia-dra-driver"
ACCESS = "kubectl apply -k kubernetes/access-dra"
READ_SLICES = "kubectl create clusterrole gputax-dra-slices --verb=list --resource=resourceslices.resource.k8s.io"


def claim_facts(cluster: Cluster, *, claims: bool) -> dict[str, Any]:
    """Return whether the API is there, and the devices by node and kind; with `claims` also rights and classes."""
    facts: dict[str, Any] = {"api": True, "devices": None, "classes": None, "missing_rights": None}
    try:
        found = devices_in(cluster.list("ResourceSlice"))
        counted = Counter((each.node, each.profile or each.kind or "device") for each in found)
        facts["devices"] = [{"node": node, "kind": kind, "count": count} for (node, kind), count in counted.items()]
    except NotFoundError:
        return {**facts, "api": False}
    except ForbiddenError:
        pass
    if claims:
        facts["missing_rights"] = [
            {"verb": each.verb, "resource": each.resource, "why": each.why}
            for each in PERMISSIONS
            if not cluster.allowed(each.verb, each.resource, group=each.group)[0]
        ]
        facts["classes"] = _classes(cluster)
    return facts


def _classes(cluster: Cluster) -> list[str] | None:
    try:
        return sorted(str(each["metadata"]["name"]) for each in cluster.list("DeviceClass"))
    except GputaxError:
        return None


def check_claims(facts: Mapping[str, Any] | None, problem: str, wanted: bool) -> list[Finding]:
    """Return the findings; without `wanted` only that there are devices which claims could get."""
    if facts is None:
        why = "Without an answer nothing is known about ResourceClaims."
        return (
            [Finding("fail", f"No answer about {API_VERSION}", problem, why, "kubectl api-versions")] if wanted else []
        )
    if not wanted:
        found = _described(facts)
        title = f"Devices for ResourceClaims ({DRIVER})"
        return [Finding("ok", title, f"{found}; --sharing-flavour dra uses them")] if found else []
    if not facts["api"]:
        why = f"Dynamic resource allocation needs Kubernetes {OLDEST_VERSION} or newer."
        return [Finding("fail", f"The cluster does not serve {API_VERSION}", "", why, "kubectl api-versions")]
    findings = [
        Finding("fail", f"Not permitted: {each['verb']} {each['resource']}", "", f"Needed to {each['why']}.", ACCESS)
        for each in facts["missing_rights"] or ()
    ]
    if not findings:
        findings = [Finding("ok", f"All {len(PERMISSIONS)} permissions that claims need, in the namespace alone")]
    return [*findings, *_check_classes(facts["classes"]), *_check_devices(facts)]


def _check_classes(classes: list[str] | None) -> list[Finding]:
    if classes is None:
        return []  # a pod with an unknown class stays Pending, and the scheduler says why
    missing = [name for name in (GPU_CLASS, MIG_CLASS) if name not in classes]
    if not missing:
        return [Finding("ok", "Device classes", ", ".join((GPU_CLASS, MIG_CLASS)))]
    why = "A claim names the class of its device; NVIDIA's DRA driver brings the classes."
    return [Finding("fail", f"No device class {', '.join(missing)}", "", why, INSTALL)]


def _check_devices(facts: Mapping[str, Any]) -> list[Finding]:
    if facts["devices"] is None:
        why = "The GPU of a claim is then known by its name alone; MIG needs --mig-profile, and MPS caps no memory."
        return [Finding("warn", "Not permitted to list resourceslices", "", why, READ_SLICES)]
    if not facts["devices"]:
        why = "The driver publishes no device: a claim would never be allocated."
        return [Finding("fail", f"No ResourceSlice of {DRIVER}", "", why, INSTALL)]
    return [Finding("ok", f"Devices for ResourceClaims ({DRIVER})", _described(facts))]


def _described(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{each['node'] or 'any node'}: {each['count']} {each['kind']}" for each in facts["devices"] or ())
