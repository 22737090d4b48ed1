"""Tenants on this machine: processes on the same cores, in groups with a CPU quota, or behind one GPU proxy."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gputax.environments.environment import Described, Evidence, unproven
from gputax.environments.proxy import SOCKET_VARIABLE
from gputax.errors import PreflightError, UsageError
from gputax.plan.cells import Setup
from gputax.plan.driver import driver_choice
from gputax.plan.engines import ENGINES, parse_engine, waiting_passively
from gputax.plan.environment import BARE
from gputax.plan.shares import Asked
from gputax.plan.techniques import Entitlement, Technique
from gputax.plan.workloads import is_micro
from gputax.sharing.cpu_quota import WEIGHT, Quota, QuotaGroups, quota_of
from gputax.sharing.local_tenants import KERNEL_TIME, SOFTWARE, CommonProxy, CoreTenant, ProxyTenant, QuotaTenant
from gputax.sharing.place import Say, Switched, Tenant, refuse_unequal
from gputax.worker.probes.limits import CpuAllowance, cpu_allowance

NO_TIME_OF_ITS_OWN = (
    "the software device takes no time itself: tenants only share the host's CPU and the proxy; "
    "set GPUTAX_SOFT_KERNEL_US=125 GPUTAX_SOFT_COPY_GBPS=4.5 to make it busy like a real device"
)


@dataclass(frozen=True)
class Machine:
    """What the techniques of this machine divide, and what they were asked for."""

    allowance: CpuAllowance
    root: Path = Path("/")
    say: Say = lambda text: None
    proxy_memory_mb: int = 0

    @property
    def cpus(self) -> float:
        """The CPUs to share: those that this process may use."""
        cores = float(len(self.allowance.affinity))
        return cores if self.allowance.quota_cpus is None else min(cores, self.allowance.quota_cpus)


@dataclass
class GroupProof:
    """What all tenants together show."""

    reasons: list[str]
    facts: dict[str, Any]
    warning: str = ""


class LocalTechnique(Protocol):
    """A technique on this machine: a class that takes the machine, one object for an experiment."""

    def __init__(self, machine: Machine) -> None: ...

    def refuse(self, technique: Technique, setup: Setup) -> None:
        """Raise UsageError for a setup that it cannot run."""
        ...

    def prepare(self, parts: int) -> dict[str, Any]:
        """Create what it needs and return its facts; raise PreflightError if it is impossible here."""
        ...

    def tenants(self, name: str, count: int, parts: int, setup: Setup) -> list[Tenant]:
        """Return the tenants, not yet started; `name` is their environment's."""
        ...

    def refuse_shares(self, technique: Technique, shares: Sequence[float]) -> None:
        """Raise UsageError for shares that it cannot be asked for."""
        ...

    def asking(self, name: str, shares: Sequence[float], setup: Setup) -> list[Tenant]:
        """Return tenants that ask for these shares, not yet started."""
        ...

    def proof(self, tenants: Sequence[Evidence], described: Sequence[Described]) -> GroupProof:
        """Return what the tenants together show for it."""
        ...

    def suspend(self) -> None:
        """End what would disturb another technique."""
        ...

    def close(self) -> None:
        """End and remove everything; safe to call twice."""
        ...


class CpuShared:
    """`cpu-shared`: all tenants on all cores."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def refuse(self, technique: Technique, setup: Setup) -> None:
        """Refuse a device: this shares the CPU."""
        uses_driver = ENGINES[parse_engine(setup.engine).name].uses_driver
        if uses_driver or setup.device in ("cuda", "software"):
            what = setup.device if not uses_driver else "workload micro" if is_micro(setup.workload) else setup.engine
            raise UsageError(
                f"{technique.name} shares the CPU: it does not support {what}",
                where=f"technique {technique.name}",
                next_step="use --tech proxy for the software device, or --env k8s for a GPU",
            )

    def prepare(self, parts: int) -> dict[str, Any]:
        """Nothing to create."""
        return {}

    def tenants(self, name: str, count: int, parts: int, setup: Setup) -> list[Tenant]:
        """Return processes without any limit."""
        setup = self._on_cores(setup, parts)
        entitlement = _of_cores(setup.threads, self._machine.cpus)
        return [Tenant(CoreTenant(name, self._machine.allowance), setup, entitlement) for _ in range(count)]

    def refuse_shares(self, technique: Technique, shares: Sequence[float]) -> None:
        """Refuse unequal shares: the scheduler gives equal processes equal turns."""
        refuse_unequal(technique, shares, "cpu-quota,proxy")

    def asking(self, name: str, shares: Sequence[float], setup: Setup) -> list[Tenant]:
        """Return processes without any limit, each able to use all cores; they may expect equal turns."""
        setup = self._on_cores(setup, 1)
        entitlement = _of_cores(setup.threads, self._machine.cpus)
        return [
            Tenant(CoreTenant(name, self._machine.allowance), setup, entitlement, asked=Asked(share, exact=False))
            for share in shares
        ]

    def proof(self, tenants: Sequence[Evidence], described: Sequence[Described]) -> GroupProof:
        """Show that all tenants may use the same cores."""
        affinities = {each.affinity for each in described}
        reasons = ["the tenants are pinned to different cores"] if len(affinities) != 1 else []
        return GroupProof(reasons, {"affinity": list(next(iter(affinities))), "cpus": self._machine.cpus})

    def suspend(self) -> None:
        """Nothing runs beside the tenants."""

    def close(self) -> None:
        """Nothing was created."""

    def _on_cores(self, setup: Setup, parts: int) -> Setup:
        """Return the setup for the CPU: passively waiting threads, by default one per core of an equal share."""
        threads = setup.threads or max(1, int(self._machine.cpus) // parts)
        return dataclasses.replace(setup, device="cpu", threads=threads, engine=waiting_passively(setup.engine))


class CpuQuota(CpuShared):
    """`cpu-quota`: each tenant in a control group with its share of CPU time."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._groups: QuotaGroups | None = None

    def prepare(self, parts: int) -> dict[str, Any]:
        """Create the parent of the tenants' groups."""
        if self._groups is None:
            self._groups = QuotaGroups(self._machine.root)
        quota = self._quota(parts)
        return {
            "cgroup": str(self._groups.path),
            "cgroup_version": self._groups.version,
            "quota_cpus": quota.cpus,
            "period_us": quota.period_us,
            "weight_of_a_tenant": WEIGHT[self._groups.version],
        }

    def tenants(self, name: str, count: int, parts: int, setup: Setup) -> list[Tenant]:
        """Return processes with a quota each."""
        self.prepare(parts)
        assert self._groups is not None
        self._groups.weigh(count)
        setup, quota = self._on_cores(setup, parts), self._quota(parts)
        entitlement = Entitlement(f"1/{parts} of {_cores(self._machine.cpus)}", quota.cpus / self._machine.cpus)
        return [
            Tenant(QuotaTenant(name, self._groups, f"t{number}", quota), setup, entitlement)
            for number in range(1, count + 1)
        ]

    def refuse_shares(self, technique: Technique, shares: Sequence[float]) -> None:
        """Take any."""

    def asking(self, name: str, shares: Sequence[float], setup: Setup) -> list[Tenant]:
        """Return processes with a quota each, able to use all cores."""
        self.prepare(1)
        assert self._groups is not None
        self._groups.weigh(len(shares))
        setup = self._on_cores(setup, 1)
        return [
            self._with_quota(name, number, quota_of(share * self._machine.cpus), share, setup)
            for number, share in enumerate(shares, start=1)
        ]

    def _with_quota(self, name: str, number: int, quota: Quota, share: float, setup: Setup) -> Tenant:
        assert self._groups is not None
        # A quota is in whole microseconds of a period: what was asked for is what the kernel was told.
        asked = Asked(quota.cpus / self._machine.cpus)
        entitlement = Entitlement(f"{share:.3g} of {_cores(self._machine.cpus)}", asked.compute)
        return Tenant(QuotaTenant(name, self._groups, f"t{number}", quota), setup, entitlement, asked=asked)

    def proof(self, tenants: Sequence[Evidence], described: Sequence[Described]) -> GroupProof:
        """Add the weight that the kernel gives the tenants together."""
        found = super().proof(tenants, described)
        if self._groups is not None:
            found.facts["weight_of_all_tenants"] = self._groups.weight()
        return found

    def close(self) -> None:
        """Remove the groups."""
        if self._groups is not None:
            self._groups.close()
            self._groups = None

    def _quota(self, parts: int) -> Quota:
        return quota_of(self._machine.cpus / parts)


class BehindProxy:
    """`proxy`: all tenants behind one GPU proxy."""

    def __init__(self, machine: Machine) -> None:
        self._proxy = CommonProxy(machine.say, machine.proxy_memory_mb)
        self._computes = False

    def refuse(self, technique: Technique, setup: Setup) -> None:
        """Refuse what does not use the driver."""
        if not driver_choice(setup).needed:
            raise UsageError(
                "the GPU proxy forwards the CUDA driver API, which "
                f"the engine {parse_engine(setup.engine).name} does not use",
                where=f"technique {technique.name}",
                next_step="use --engine tinygrad or --workload micro:operation, in a separate command",
            )

    def prepare(self, parts: int) -> dict[str, Any]:
        """The proxy starts with the first tenants, which name the driver."""
        return {}

    def tenants(self, name: str, count: int, parts: int, setup: Setup) -> list[Tenant]:
        """Return clients of the proxy, which is started if none runs."""
        proxy = self._proxy.started(driver_choice(setup))
        self._computes = not is_micro(setup.workload)
        entitlement = Entitlement(self._proxy.entitlement(), 1.0)
        return [Tenant(ProxyTenant(name, proxy), setup, entitlement) for _ in range(count)]

    def refuse_shares(self, technique: Technique, shares: Sequence[float]) -> None:
        """Refuse shares of a proxy that is running already: its quotas are its operator's."""
        if os.environ.get(SOCKET_VARIABLE):
            raise UsageError(
                f"{SOCKET_VARIABLE} names a running proxy, whose quotas cannot be asked for here",
                where=f"technique {technique.name}",
                next_step=f"unset {SOCKET_VARIABLE}: a proxy with these shares is then started",
            )

    def asking(self, name: str, shares: Sequence[float], setup: Setup) -> list[Tenant]:
        """Return clients of a proxy whose places have these shares of the device's time and memory."""
        self._computes = not is_micro(setup.workload)
        driver = driver_choice(setup)
        places = self._proxy.divided(driver, shares)
        return [
            Tenant(
                ProxyTenant(name, place.proxy),
                setup,
                Entitlement(place.text, share if place.asked.compute is not None else 1.0),
                asked=place.asked,
            )
            for place, share in zip(places, shares, strict=True)
        ]

    def proof(self, tenants: Sequence[Evidence], described: Sequence[Described]) -> GroupProof:
        """Show that one proxy served all tenants, each as one of its own."""
        reasons = []
        proxies = {(each.fact("proxy_pid"), each.fact("device")) for each in tenants}
        numbers = [each.fact("tenant") for each in tenants]
        if len(proxies) != 1:
            reasons.append(f"the tenants were served by {len(proxies)} proxies or devices")
        if len(set(numbers)) != len(numbers):
            reasons.append("the proxy counts two tenants as one")
        device = tenants[0].fact("device")
        facts = {"proxy_pid": tenants[0].fact("proxy_pid"), "device": device, "tenants_of_the_proxy": numbers}
        idle = SOFTWARE in str(device) and not os.environ.get(KERNEL_TIME) and not self._computes
        return GroupProof(reasons, facts, NO_TIME_OF_ITS_OWN if idle else "")

    def suspend(self) -> None:
        """Stop the proxy: one that spins would take a core from the others."""
        self._proxy.close()

    def close(self) -> None:
        """Stop the proxy if we started it."""
        self._proxy.close()


class BareShared:
    """`bare`: tenants on this machine, by the technique that is switched on."""

    name = BARE

    def __init__(
        self,
        say: Say = lambda text: None,
        proxy_memory_mb: int = 0,
        root: Path = Path("/"),
        allowance: CpuAllowance | None = None,
    ) -> None:
        self._machine = Machine(allowance or cpu_allowance(root), root, say, proxy_memory_mb)
        self._techniques: dict[str, LocalTechnique] = {}

    @property
    def cpus(self) -> float:
        """The CPUs to share."""
        return self._machine.cpus

    def impossible(self, technique: Technique, setup: Setup) -> PreflightError | None:
        """Return why the technique cannot be used here, or None; contradictory options raise UsageError."""
        local = self._local(technique)
        local.refuse(technique, setup)
        try:
            local.prepare(1)
        except PreflightError as error:
            return error
        return None

    def switch(self, technique: Technique, parts: int, say: Say) -> Switched:
        """Create what the technique needs; no device has to be switched."""
        started = time.monotonic()
        facts: dict[str, Any] = {"cpus": self.cpus, "affinity": list(self._machine.allowance.affinity)}
        facts |= self._local(technique).prepare(parts)
        for name, other in self._techniques.items():
            if name != technique.name:
                other.suspend()
        return Switched(time.monotonic() - started, facts)

    def tenants(self, technique: Technique, count: int, parts: int, setup: Setup) -> list[Tenant]:
        """Return the tenants; each has the same number of threads, however many tenants there are."""
        local = self._local(technique)
        local.refuse(technique, setup)
        return local.tenants(technique.environment(self.name), count, parts, setup)

    def refuse_shares(self, technique: Technique, shares: Sequence[float], setup: Setup) -> None:
        """Raise UsageError for shares that the technique cannot be asked for."""
        local = self._local(technique)
        local.refuse(technique, setup)
        local.refuse_shares(technique, shares)

    def asking(self, technique: Technique, shares: Sequence[float], setup: Setup) -> list[Tenant]:
        """Return tenants that ask for these shares."""
        return self._local(technique).asking(technique.environment(self.name), shares, setup)

    def evidence(self, technique: Technique, tenants: Sequence[Evidence], described: Sequence[Described]) -> Evidence:
        """Show that all tenants shared this machine by the technique."""
        reasons = unproven(tenants)
        pids = [each.pid for each in described]
        if len(set(pids)) != len(pids):
            reasons.append("two tenants are the same process")
        proof = self._local(technique).proof(tenants, described)
        return Evidence.of(
            technique.name, [*reasons, *proof.reasons], {"pids": pids, **proof.facts}, warning=proof.warning,
            list_reasons=True,
        )  # fmt: skip

    def files(self) -> dict[str, str]:
        """Return nothing: the record contains all settings."""
        return {}

    def close(self) -> None:
        """Stop the proxy and remove the groups; safe to call twice."""
        for technique in self._techniques.values():
            technique.close()

    def _local(self, technique: Technique) -> LocalTechnique:
        if self.name not in technique.implementations:
            raise UsageError(f"the technique {technique.name} does not exist in the environment {self.name}")
        if technique.name not in self._techniques:
            self._techniques[technique.name] = technique.load(self.name)(self._machine)
        return self._techniques[technique.name]


def _of_cores(threads: int, cpus: float) -> Entitlement:
    """Return the most that this number of threads can use of undivided cores."""
    if threads >= cpus:
        return Entitlement(f"up to all {_cores(cpus)}", 1.0)
    words = f"{threads} thread{'s' if threads != 1 else ''}"
    return Entitlement(f"up to {threads} of {_cores(cpus)} ({words})", threads / cpus)


def _cores(cpus: float) -> str:
    return f"{cpus:g} core" + ("" if cpus == 1 else "s")
