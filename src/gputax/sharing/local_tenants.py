"""Local tenants: how a worker is started, and the evidence that its technique was in effect."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gputax.environments.environment import Described, Evidence
from gputax.environments.process import ChildProcess, start_local_worker
from gputax.environments.proxy import UsedProxy, divided_proxy, used_proxy
from gputax.plan.driver import DriverChoice
from gputax.plan.shares import Asked
from gputax.sharing.cpu_quota import Quota, QuotaGroup, QuotaGroups
from gputax.sharing.place import Say
from gputax.text import digits
from gputax.worker.probes.files import read_text
from gputax.worker.probes.limits import CpuAllowance

SOFTWARE, KERNEL_TIME = "software device", "GPUTAX_SOFT_KERNEL_US"
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

    def __init__(self, name: str, proxy: UsedProxy) -> None:
        self.name = name
        self._proxy = proxy

    def start(self) -> ChildProcess:
        """Start a worker that loads libvgpu as its driver."""
        return start_local_worker(self._proxy.surroundings())

    def evidence(self, described: Described) -> Evidence:
        """Compare the worker's report on its driver with the proxy's status."""
        return self._proxy.evidence(described)


@dataclass(frozen=True)
class ProxyPlace:
    """A place of a proxy, and what its tenant asks for."""

    proxy: UsedProxy
    asked: Asked
    text: str


def _place(proxy: UsedProxy, percent: float) -> ProxyPlace:
    """Return a place with its share; of the device's time only where the device has time that can be divided."""
    timed = bool(os.environ.get(KERNEL_TIME)) and SOFTWARE in str(proxy.address.status().get("device"))
    share = percent / 100.0
    shown = digits(percent, 4)
    time = f"{shown} % of the device's time, " if timed else "up to all of its time, "
    return ProxyPlace(proxy, Asked(share if timed else None, share), f"{time}{shown} % of its memory")


class CommonProxy:
    """The proxy of all tenants: the one selected by the variable, or a new one that stops with the place."""

    def __init__(self, say: Say, memory_mb: int = 0) -> None:
        self._say, self._memory_mb = say, memory_mb
        self._stack = ExitStack()
        self._used: UsedProxy | None = None

    def started(self, driver: DriverChoice) -> UsedProxy:
        """Return the proxy; the first call starts it."""
        if self._used is None:
            self._used = self._stack.enter_context(used_proxy(driver, self._memory_mb))
            if self._used.note:
                self._say(self._used.note)
        return self._used

    def entitlement(self) -> str:
        """Describe what a tenant may use; the limits of a proxy that was already running are not known here."""
        return "up to all of it" + (f", {self._memory_mb} MB of memory" if self._memory_mb else "")

    def divided(self, driver: DriverChoice, shares: Sequence[float]) -> list[ProxyPlace]:
        """Start a proxy whose places have these shares, instead of the one that runs; the whole device needs none."""
        self.close()
        if tuple(shares) == (1.0,):
            proxy = self.started(driver)
            return [ProxyPlace(proxy, Asked(1.0, 1.0), self.entitlement())]
        percents = [100.0 * share for share in shares]
        proxies = self._stack.enter_context(divided_proxy(driver, percents))
        return [_place(proxy, percent) for proxy, percent in zip(proxies, percents, strict=True)]

    def close(self) -> None:
        """Stop the proxy if we started it; safe to call twice."""
        self._used = None
        self._stack.close()


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU time used by all threads of a running process."""
    text = read_text(Path(f"/proc/{pid}/stat"))
    if text is None:
        return None
    fields = text.rpartition(")")[2].split()  # a program's name may contain spaces and parentheses
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))
