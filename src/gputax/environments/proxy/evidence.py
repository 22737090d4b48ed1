"""Evidence that all of a worker's driver calls went through the GPU proxy; pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gputax.environments.evidence import Evidence
from gputax.plan.environment import PROXY

MOST_SHOWN = 3


@dataclass(frozen=True)
class Intended:
    """What the environment set up; empty values are decided by a proxy that was already running."""

    libvgpu: str
    transport: str
    backend: str = ""
    same_pid_namespace: bool = True
    """Whether worker and proxy share a process namespace; two pods do not."""


def proxy_evidence(driver: Mapping[str, Any], status: Mapping[str, Any], intended: Intended) -> Evidence:
    """Compare the worker's report with the proxy's status; `active` only if they agree."""
    vgpu = driver.get("vgpu") or {}
    tenant = tenant_of(status, vgpu.get("tenant"))
    worker_calls, proxy_calls = _counts(vgpu.get("calls")), _counts((tenant or {}).get("calls"))
    reasons = [
        *_way(driver, vgpu, intended),
        *_tenant(driver, vgpu, tenant, intended),
        *(_calls(worker_calls, proxy_calls) if tenant is not None else []),
        *_backend(vgpu, status, intended),
    ]
    facts = {
        "library": driver.get("library"),
        "backend": status.get("backend"),
        "device": status.get("device"),
        "tenant": vgpu.get("tenant"),
        "transport": vgpu.get("transport"),
        "wait_policy": vgpu.get("wait_policy") or status.get("wait_policy"),
        "device_nodes": list(driver.get("device_nodes") or ()),
        "calls_by_worker": sum(worker_calls.values()),
        "calls_by_proxy": sum(proxy_calls.values()),
        "calls": proxy_calls,
        "proxy_pid": status.get("pid"),
        "pid": driver.get("pid"),
    }
    return Evidence.of(PROXY, reasons, facts, list_reasons=True)


def tenant_of(status: Mapping[str, Any], number: Any) -> Mapping[str, Any] | None:
    """Return the proxy's record of a tenant, running or ended."""
    for tenant in (*(status.get("tenants") or ()), *(status.get("ended_tenants") or ())):
        if number is not None and tenant.get("id") == number:
            return dict(tenant)
    return None


def _way(driver: Mapping[str, Any], vgpu: Mapping[str, Any], intended: Intended) -> list[str]:
    reasons = []
    if driver.get("library") != intended.libvgpu:
        reasons.append(f"the worker loaded {driver.get('library') or 'no driver'}, not libvgpu ({intended.libvgpu})")
    if not vgpu:
        reasons.append("the worker's driver reports no connection to a proxy")
    nodes = driver.get("device_nodes") or ()
    if nodes:
        reasons.append(f"the worker itself opened {', '.join(nodes)}")
    if vgpu and vgpu.get("transport") != intended.transport:
        reasons.append(f"the transport is {vgpu.get('transport')}, not {intended.transport}")
    return reasons


def _tenant(
    driver: Mapping[str, Any], vgpu: Mapping[str, Any], tenant: Mapping[str, Any] | None, intended: Intended
) -> list[str]:
    if not vgpu:
        return []
    if tenant is None:
        return [f"the proxy has no tenant {vgpu.get('tenant')}"]
    if intended.same_pid_namespace and tenant.get("pid") != driver.get("pid"):
        return [f"the proxy's tenant is process {tenant.get('pid')}, but the worker is {driver.get('pid')}"]
    return []


def _calls(worker: Mapping[str, int], proxy: Mapping[str, int]) -> list[str]:
    if not sum(proxy.values()):
        return ["no call went through the proxy"]
    unequal = [name for name in sorted({*worker, *proxy}) if worker.get(name, 0) != proxy.get(name, 0)]
    shown = [f"{name}: {worker.get(name, 0)} made, {proxy.get(name, 0)} counted" for name in unequal[:MOST_SHOWN]]
    return [f"the proxy's counters differ from the worker's calls ({'; '.join(shown)})"] if unequal else []


def _backend(vgpu: Mapping[str, Any], status: Mapping[str, Any], intended: Intended) -> list[str]:
    reasons = []
    if intended.backend and status.get("backend") != intended.backend:
        reasons.append(f"the proxy's backend is {status.get('backend')}, not {intended.backend}")
    for name in ("backend", "device"):
        if vgpu and vgpu.get(name) != status.get(name):
            reasons.append(f"the worker reports {name} {vgpu.get(name)!r}, the proxy {status.get(name)!r}")
    return reasons


def _counts(calls: Any) -> dict[str, int]:
    """Return the non-zero counters: the two sides may list different names."""
    return {str(name): int(count) for name, count in calls.items() if count} if isinstance(calls, Mapping) else {}
