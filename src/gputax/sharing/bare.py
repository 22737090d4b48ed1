"""Local tenants: how a worker is started, and the evidence that its technique was in effect."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from gputax.environments.described import Described
from gputax.environments.driver import LIBVGPU, driver_library, library_variables, native_part
from gputax.environments.evidence import Evidence, unproven
from gputax.environments.process import ChildProcess, start_local_worker
from gputax.environments.proxy import (
    SOCKET_VARIABLE,
    Intended,
    ProxyAddress,
    ProxyOptions,
    own_proxy,
    proxy_evidence,
    running_proxy,
    spin_of,
    transport_of,
)
from gputax.errors import GputaxError, PreflightError, UsageError
from gputax.plan.cells import Setup
from gputax.plan.driver import DriverChoice, driver_choice
from gputax.plan.engines import waiting_passively
from gputax.plan.environment import PROXY
from gputax.plan.techniques import Entitlement, Technique
from gputax.sharing.cpu_quota import WEIGHT, Quota, QuotaGroup, QuotaGroups, quota_of
from gputax.sharing.place import Say, Switched, Tenant
from gputax.worker.probes.files import read_text
from gputax.worker.probes.limits import CpuAllowance, cpu_allowance

# For libraries that we do not configure ourselves; a spinning thread pool takes cores from the other tenants.
PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE"}
# A quota is in whole microseconds, so its ratio may be rounded.
QUOTA_ROUNDING = 1e-3
# The kernel assigns a quota in slices, and a process runs unlimited for some milliseconds until it is in its group.
USAGE_RESERVE, FREE_START_S = 1.10, 1.0


@contextmanager
def _passive() -> Iterator[dict[str, str]]:
    yield {**os.environ, **PASSIVE}


class CoreTenant:
    """`cpu-shared`: a process on all cores, without any limit."""

    def __init__(self, name: str, machine: CpuAllowance) -> None:
        self.name = name
        self._machine = machine

    def start(self) -> ChildProcess:
        """Start a worker as a child of this process."""
        return start_local_worker(_passive())

    def evidence(self, described: Described) -> Evidence:
        """Show that the tenant may use every core and has no quota of its own."""
        allowance = described.cpu_allowance or {}
        reasons = []
        if described.affinity != self._machine.affinity:
            reasons.append(f"the tenant is pinned to cores {allowance.get('affinity')}, not {self._machine.affinity}")
        if described.quota_cpus != self._machine.quota_cpus:
            reasons.append(f"the tenant has a quota of {described.quota_cpus} CPUs")
        facts = {"pid": described.pid, "cpu_allowance": allowance}
        return Evidence.of("cpu-shared", reasons, facts, list_reasons=True)


class QuotaTenant:
    """`cpu-quota`: a process in its own control group."""

    def __init__(self, name: str, groups: QuotaGroups, group: str, quota: Quota) -> None:
        self.name = name
        self._groups, self._group_name, self._quota = groups, group, quota
        self._group: QuotaGroup | None = None
        self._started_s = 0.0

    def start(self) -> ChildProcess:
        """Start a worker and move it into its group before it starts threads."""
        group = self._group = self._groups.group(self._group_name, self._quota)
        process = start_local_worker(_passive())
        try:
            group.add(process.pid)
        except BaseException:
            process.kill()
            process.wait()
            raise
        self._started_s = time.monotonic()
        return process

    def evidence(self, described: Described) -> Evidence:
        """Compare the worker's view of its quota with the setting and the kernel's counters."""
        if self._group is None:
            return Evidence.of("cpu-quota", ["no worker was started"])
        pid, seen, counted = described.pid, described.quota_cpus, self._group.throttling()
        elapsed_s = time.monotonic() - self._started_s
        used_s = cpu_seconds(pid) if isinstance(pid, int) else None
        reasons = []
        if pid not in self._group.members():
            reasons.append(f"process {pid} is not in the group {self._group.path}")
        if seen is None or abs(seen / self._quota.cpus - 1.0) > QUOTA_ROUNDING:
            reasons.append(f"the tenant sees a quota of {seen} CPUs, not {self._quota.cpus:g}")
        if self._group.effective_cpus() != self._quota.cpus:
            reasons.append(f"the group's quota is {self._group.effective_cpus()} CPUs, not {self._quota.cpus:g}")
        allowed_s = self._quota.cpus * elapsed_s * USAGE_RESERVE + FREE_START_S
        if used_s is None or used_s > allowed_s:
            reasons.append(f"the tenant used {used_s} s of CPU time in {elapsed_s:.1f} s: its quota was not enforced")
        facts = {
            "pid": pid,
            "cgroup": str(self._group.path),
            "quota_cpus": self._quota.cpus,
            "period_us": self._quota.period_us,
            "cpu_used_s": used_s,
            "elapsed_s": round(elapsed_s, 3),
            "periods": counted.periods,
            "throttled_periods": counted.throttled,
            "cpu_allowance": described.cpu_allowance or {},
        }
        return Evidence.of("cpu-quota", reasons, facts, list_reasons=True)


class ProxyTenant:
    """`proxy`: a process whose driver is libvgpu, a client of the proxy that serves all tenants."""

    def __init__(self, name: str, address: ProxyAddress, intended: Intended) -> None:
        self.name = name
        self._address, self._intended = address, intended

    def start(self) -> ChildProcess:
        """Start a worker that loads libvgpu as its driver."""
        return start_local_worker(self._surroundings())

    @contextmanager
    def _surroundings(self) -> Iterator[dict[str, str]]:
        with library_variables(native_part(LIBVGPU).resolve(), os.environ) as variables:
            yield {**variables, SOCKET_VARIABLE: str(self._address.socket)}

    def evidence(self, described: Described) -> Evidence:
        """Compare the worker's report on its driver with the proxy's status."""
        try:
            status = self._address.status()
        except GputaxError as error:
            return Evidence.of(PROXY, [error.what])
        return proxy_evidence(described.driver or {}, status, self._intended)


class CommonProxy:
    """The proxy of all tenants: the one selected by the variable, or a new one that stops with the place."""

    def __init__(self, say: Say, memory_mb: int = 0) -> None:
        self._say, self._memory_mb = say, memory_mb
        self._stack = ExitStack()
        self._address: ProxyAddress | None = None
        self.intended = Intended("", "")

    def address(self, driver: DriverChoice) -> ProxyAddress:
        """Return the proxy; the first call starts it."""
        if self._address is None:
            address, backend = running_proxy(os.environ), ""
            if address is None:
                library = driver_library(driver)
                backend = str(library.path)
                if library.note:
                    self._say(library.note)
                options = ProxyOptions(library.path, memory_mb=self._memory_mb, spin=spin_of(os.environ))
                address = self._stack.enter_context(own_proxy(options, os.environ))
            self._address = address
            self.intended = Intended(str(native_part(LIBVGPU).resolve()), transport_of(os.environ), backend)
        return self._address

    def entitlement(self) -> str:
        """Describe what a tenant may use; the limits of a proxy that was already running are not known here."""
        return "up to all of it" + (f", {self._memory_mb} MB of memory" if self._memory_mb else "")

    def close(self) -> None:
        """Stop the proxy if we started it; safe to call twice."""
        self._address = None
        self._stack.close()


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU time used by all threads of a running process."""
    text = read_text(Path(f"/proc/{pid}/stat"))
    if text is None:
        return None
    fields = text.rpartition(")")[2].split()  # a program's name may contain spaces and parentheses
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


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
