"""Local tenants: processes on the same cores, in groups with a CPU quota, or as clients of one GPU proxy."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gputax.environments.described import Described
from gputax.environments.evidence import Evidence, unproven
from gputax.errors import PreflightError, UsageError
from gputax.plan.cells import Setup
from gputax.plan.driver import driver_choice
from gputax.plan.engines import waiting_passively
from gputax.plan.techniques import Entitlement, Technique
from gputax.sharing.bare.cpu_quota import WEIGHT, QuotaGroups, quota_of
from gputax.sharing.bare.tenants import CommonProxy, CoreTenant, ProxyTenant, QuotaTenant
from gputax.sharing.place import Say, Switched, Tenant
from gputax.worker.probes.limits import cpu_allowance

SOFTWARE, KERNEL_TIME = "software device", "GPUTAX_SOFT_KERNEL_US"
NO_TIME_OF_ITS_OWN = (
    "the software device takes no time itself: tenants only share the host's CPU and the proxy; "
    "set GPUTAX_SOFT_KERNEL_US=125 GPUTAX_SOFT_COPY_GBPS=4.5 to make it busy like a real device"
)


class BareShared:
    """`bare`: the stand-ins `cpu-shared` and `cpu-quota`, and `proxy`."""

    name = "bare"

    def __init__(self, say: Say = lambda text: None, proxy_memory_mb: int = 0, root: Path = Path("/")) -> None:
        self._say = say
        self._root = root
        self._allowance = cpu_allowance(root)
        self._groups: QuotaGroups | None = None
        self._proxy = CommonProxy(say, proxy_memory_mb)

    @property
    def cpus(self) -> float:
        """The CPUs to share: those that this process may use."""
        cores = float(len(self._allowance.affinity))
        return cores if self._allowance.quota_cpus is None else min(cores, self._allowance.quota_cpus)

    def impossible(self, technique: Technique, setup: Setup) -> PreflightError | None:
        """Return why the technique cannot be used here, or None; contradictory options raise UsageError."""
        _refuse_contradictions(technique, setup)
        try:
            if technique.name == "cpu-quota":
                self._quota_groups()
        except PreflightError as error:
            return error
        return None

    def switch(self, technique: Technique, parts: int, say: Say) -> Switched:
        """Create what the technique needs; there is no device to switch."""
        started = time.monotonic()
        facts: dict[str, Any] = {"cpus": self.cpus, "affinity": list(self._allowance.affinity)}
        if technique.name == "cpu-quota":
            groups = self._quota_groups()
            quota = quota_of(self.cpus / parts)
            facts |= {
                "cgroup": str(groups.path),
                "cgroup_version": groups.version,
                "quota_cpus": quota.cpus,
                "period_us": quota.period_us,
                "weight_of_a_tenant": WEIGHT[groups.version],
            }
        if technique.name != "proxy":
            self._proxy.close()
        return Switched(time.monotonic() - started, facts)

    def tenants(self, technique: Technique, count: int, parts: int, setup: Setup) -> list[Tenant]:
        """Return the tenants; each has the same number of threads, however many tenants there are."""
        _refuse_contradictions(technique, setup)
        name = technique.environment(self.name)
        match technique.name:
            case "cpu-shared":
                on_cores = self._on_cores(setup, parts)
                entitlement = _of_cores(on_cores.threads, self.cpus)
                return [Tenant(CoreTenant(name, self._allowance), on_cores, entitlement) for _ in range(count)]
            case "cpu-quota":
                groups, quota = self._quota_groups(), quota_of(self.cpus / parts)
                groups.weigh(count)
                on_cores = self._on_cores(setup, parts)
                entitlement = Entitlement(f"1/{parts} of {_cores(self.cpus)}", quota.cpus / self.cpus)
                return [
                    Tenant(QuotaTenant(name, groups, f"t{number}", quota), on_cores, entitlement)
                    for number in range(1, count + 1)
                ]
            case "proxy":
                address = self._proxy.address(driver_choice(setup))
                entitlement = Entitlement(self._proxy.entitlement(), 1.0)
                return [
                    Tenant(ProxyTenant(name, address, self._proxy.intended), setup, entitlement) for _ in range(count)
                ]
        raise UsageError(f"the technique {technique.name} does not exist in the environment {self.name}")

    def evidence(self, technique: Technique, tenants: Sequence[Evidence], described: Sequence[Described]) -> Evidence:
        """Show that all tenants shared this machine by the technique."""
        reasons = unproven(tenants)
        pids = [each.pid for each in described]
        if len(set(pids)) != len(pids):
            reasons.append("two tenants are the same process")
        facts: dict[str, Any] = {"pids": pids}
        warning = ""
        if technique.name == "proxy":
            proxies = {(each.fact("proxy_pid"), each.fact("device")) for each in tenants}
            numbers = [each.fact("tenant") for each in tenants]
            if len(proxies) != 1:
                reasons.append(f"the tenants were served by {len(proxies)} proxies or devices")
            if len(set(numbers)) != len(numbers):
                reasons.append("the proxy counts two tenants as one")
            facts |= {"proxy_pid": tenants[0].fact("proxy_pid"), "device": tenants[0].fact("device")}
            facts |= {"tenants_of_the_proxy": numbers}
            if SOFTWARE in str(tenants[0].fact("device")) and not os.environ.get(KERNEL_TIME):
                warning = NO_TIME_OF_ITS_OWN
        else:
            affinities = {each.affinity for each in described}
            if len(affinities) != 1:
                reasons.append("the tenants are pinned to different cores")
            facts |= {"affinity": list(next(iter(affinities))), "cpus": self.cpus}
            if technique.name == "cpu-quota" and self._groups is not None:
                facts["weight_of_all_tenants"] = self._groups.weight()
        return Evidence.of(technique.name, reasons, facts, warning=warning, list_reasons=True)

    def files(self) -> dict[str, str]:
        """Return nothing: the record contains all settings."""
        return {}

    def close(self) -> None:
        """Stop the proxy and remove the groups; safe to call twice."""
        self._proxy.close()
        if self._groups is not None:
            self._groups.close()
            self._groups = None

    def _quota_groups(self) -> QuotaGroups:
        if self._groups is None:
            self._groups = QuotaGroups(self._root)
        return self._groups

    def _on_cores(self, setup: Setup, parts: int) -> Setup:
        """Return the setup for the CPU: passively waiting threads, by default one per core of an equal share."""
        threads = setup.threads or max(1, int(self.cpus) // parts)
        return dataclasses.replace(setup, device="cpu", threads=threads, engine=waiting_passively(setup.engine))


def _refuse_contradictions(technique: Technique, setup: Setup) -> None:
    uses_driver = driver_choice(setup).needed
    if technique.name == "proxy" and not uses_driver:
        raise UsageError(
            "the GPU proxy forwards the CUDA driver API, which models on the CPU do not use",
            where=f"technique {technique.name}",
            next_step="use --workload micro:operation, in a separate command",
        )
    if technique.stand_in and (uses_driver or setup.device in ("cuda", "software")):
        raise UsageError(
            f"{technique.name} shares the CPU: it does not support {'workload micro' if uses_driver else setup.device}",
            where=f"technique {technique.name}",
            next_step="use --tech proxy for the software device, or --env k8s for a GPU",
        )


def _of_cores(threads: int, cpus: float) -> Entitlement:
    """Return the most that this number of threads can use of undivided cores."""
    if threads >= cpus:
        return Entitlement(f"up to all {_cores(cpus)}", 1.0)
    words = f"{threads} thread{'s' if threads != 1 else ''}"
    return Entitlement(f"up to {threads} of {_cores(cpus)} ({words})", threads / cpus)


def _cores(cpus: float) -> str:
    return f"{cpus:g} core" + ("" if cpus == 1 else "s")
