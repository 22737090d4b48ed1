"""What both workers of a duet recorded beside their times, brought to one run of the workload; pure."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gputax.environments.environment import Described
from gputax.measure.session import SlotRun


@dataclass(frozen=True)
class Spent:
    """Totals over the counted runs; None if one of the slots did not know it."""

    runs: int = 0
    wall_ns: float = 0.0
    cpu_ns: float | None = 0.0
    run_wait_ns: float | None = 0.0
    throttled_ns: float | None = 0.0
    steal_ns: float | None = 0.0
    major_faults: float | None = 0.0

    def plus(self, other: Spent) -> Spent:
        """Return the sum."""
        return Spent(**{each.name: _sum(getattr(self, each.name), getattr(other, each.name)) for each in _FIELDS})

    def per_run_ms(self, name: str) -> float | None:
        """Return one of the times per run in milliseconds; None if it is unknown."""
        value = getattr(self, name)
        return None if value is None or not self.runs else float(value) / 1e6 / self.runs


_FIELDS = dataclasses.fields(Spent)


def _sum(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one + other


def of_slot(slot: SlotRun) -> Spent:
    """Return what one half of a pair spent."""
    return Spent(
        int(slot.durations_ns.size),
        float(slot.durations_ns.sum()),
        slot.cpu_ns,
        slot.run_wait_ns,
        # A worker without a group that counts throttling was not throttled by one.
        slot.throttled_ns or 0,
        slot.steal_ns,
        slot.major_faults,
    )


def of_telemetry(series: Mapping[str, Sequence[float | None]], runs: int, elapsed_s: float) -> Spent:
    """Return what one LoadGen slot spent, from its telemetry; the run queue is not in it."""

    def last(name: str, unit: float) -> float | None:
        known = [value for value in series.get(name) or () if value is not None]
        return known[-1] * unit if known else None

    return Spent(
        runs,
        elapsed_s * 1e9,
        last("own_cpu_ms", 1e6),
        None,
        last("throttled_ms", 1e6) or 0.0,
        last("steal_ms", 1e6),
        last("major_faults", 1.0),
    )


@dataclass(frozen=True)
class SideFacts:
    """One side: its limits and settings, what its host gave it, and what a run spent; None where it is unknown."""

    threads: int | None = None
    cpus: tuple[int, ...] = ()
    quota_cpus: float | None = None
    nice: int | None = None
    policy: str | None = None
    cpu_weight: float | None = None
    """The smallest of its groups', relative to an ordinary group."""
    cpu_mhz: float | None = None
    cpu_nodes: tuple[int, ...] = ()
    remote_memory_share: float | None = None
    huge_pages: str | None = None
    huge_share: float | None = None
    host_memory: str | None = None
    """pageable or pinned, of copies to the device."""
    kernel_us: float | None = None
    calls_us: float | None = None
    load_s: float | None = None
    read_mb: float | None = None
    """Fetched from storage, since the worker started."""
    wall_ms: float | None = None
    cpu_ms: float | None = None
    run_wait_ms: float | None = None
    throttled_ms: float | None = None
    steal_ms: float | None = None
    major_faults: float | None = None
    """Per run, as all of the last six."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as it is stored with the side."""
        return dataclasses.asdict(self)


def side_facts(
    facts: Mapping[str, Any],
    described: Described,
    resources: Sequence[Mapping[str, Any]],
    load_s: Sequence[float],
    spent: Spent,
) -> SideFacts:
    """Put together what the workers of one side said: settings of the last one, medians of what was measured."""
    last = resources[-1] if resources else {}

    def middle(name: str) -> float | None:
        known = [float(each[name]) for each in resources if each.get(name) is not None]
        return statistics.median(known) if known else None

    settings = facts.get("options") if isinstance(facts.get("options"), Mapping) else {}
    return SideFacts(
        threads=facts.get("threads"),
        cpus=tuple(last.get("cpus") or described.affinity),
        quota_cpus=described.quota_cpus,
        nice=last.get("nice"),
        policy=last.get("policy"),
        cpu_weight=last.get("cpu_weight"),
        cpu_mhz=middle("cpu_mhz"),
        cpu_nodes=tuple(last.get("cpu_nodes") or ()),
        remote_memory_share=middle("remote_memory_share"),
        huge_pages="never" if last.get("huge_pages_disabled") else last.get("huge_pages"),
        huge_share=middle("huge_share"),
        host_memory=facts.get("host_memory") or (settings or {}).get("host_memory"),
        kernel_us=middle("kernel_us"),
        calls_us=middle("calls_us"),
        load_s=statistics.median(load_s) if load_s else None,
        read_mb=middle("read_mb"),
        wall_ms=spent.per_run_ms("wall_ns"),
        cpu_ms=spent.per_run_ms("cpu_ns"),
        run_wait_ms=spent.per_run_ms("run_wait_ns"),
        throttled_ms=spent.per_run_ms("throttled_ns"),
        steal_ms=spent.per_run_ms("steal_ns"),
        major_faults=None if spent.major_faults is None or not spent.runs else spent.major_faults / spent.runs,
    )
