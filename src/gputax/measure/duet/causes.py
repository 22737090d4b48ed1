"""Why one side of a duet is slower: one row per cause, each held against what both workers recorded; pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gputax.measure.duet.recorded import SideFacts
from gputax.text import digits

# A cause is named if it accounts for at least this part of the difference; most causes have company.
LEAST_SHARE = 0.5
# A wait, of which a part would be there anyway, beside a setting that explains it.
SHARE_WITH_A_SETTING = 0.3
# Less than this share of a run's time is not worth a cause: counters of both sides differ by as much by chance.
LEAST_PERCENT = 1.0
# Kernels are called equal within this, and shares of memory different beyond it.
EQUAL_KERNELS, DIFFERENT_SHARES = 0.03, 0.2
FAULTS_PER_RUN = 0.1
# Of a load: what nobody would wonder about is not said.
LEAST_LOAD_S, LEAST_LOAD_FACTOR, LEAST_READ_MB = 1.0, 1.5, 16.0


@dataclass(frozen=True)
class Cause:
    """A named cause, in words that follow the name of the slower side."""

    code: str
    text: str


@dataclass(frozen=True)
class Slower:
    """The slower side against the faster one, and by how much."""

    slow: SideFacts
    fast: SideFacts
    percent: float
    """How much longer the slower side takes; above zero."""

    @property
    def judged_ms(self) -> float | None:
        """The additional time of a typical run, by the difference that was judged."""
        return None if self.fast.wall_ms is None else self.fast.wall_ms * self.percent / 100.0

    @property
    def extra_ms(self) -> float | None:
        """The additional time of a run: of the mean, or of what was judged if that is more."""
        judged_ms, slow_ms, fast_ms = self.judged_ms, self.slow.wall_ms, self.fast.wall_ms
        if judged_ms is None or slow_ms is None or fast_ms is None:
            return judged_ms
        return max(judged_ms, slow_ms - fast_ms)

    def grown_ms(self, name: str) -> float | None:
        """Return by how much one of the times per run is larger on the slower side; None if one is unknown."""
        slow, fast = getattr(self.slow, name), getattr(self.fast, name)
        return None if slow is None or fast is None else slow - fast

    def explains(self, grown_ms: float | None, share: float = LEAST_SHARE) -> bool:
        """Whether this additional time is large enough, beside the difference and beside a run."""
        extra, wall = self.extra_ms, self.fast.wall_ms
        if grown_ms is None or extra is None or not wall:
            return False
        return grown_ms >= share * extra and grown_ms >= LEAST_PERCENT / 100.0 * wall


def explain(a: SideFacts, b: SideFacts, difference_percent: float) -> Cause | None:
    """Return the first cause that accounts for the difference; None if none of the rows does.

    `difference_percent` is B's time over A's; if it is negative, the cause is one of A.
    """
    if difference_percent >= 0.0:
        found = Slower(b, a, difference_percent)
    else:
        found = Slower(a, b, 100.0 * (1.0 / (1.0 + difference_percent / 100.0) - 1.0))
    for code, row in CAUSES.items():
        text = row(found)
        if text:
            return Cause(code, text)
    return None


def explain_load(a: SideFacts, b: SideFacts) -> Cause | None:
    """Return why B takes longer to load, if storage is why; the duet itself measures loaded workers."""
    if a.load_s is None or b.load_s is None or a.read_mb is None or b.read_mb is None:
        return None
    longer_s = b.load_s - a.load_s
    if longer_s < max(LEAST_LOAD_S, (LEAST_LOAD_FACTOR - 1.0) * a.load_s) or b.read_mb < a.read_mb + LEAST_READ_MB:
        return None
    return Cause(
        "load-storage",
        f"loading takes {digits(longer_s, 2)} s longer: {digits(b.read_mb, 2)} MB came from storage, "
        f"{digits(a.read_mb, 2)} MB on the other side (page cache)",
    )


def _throttled(found: Slower) -> str:
    grown = found.grown_ms("throttled_ms")
    tighter = found.slow.quota_cpus is not None and found.slow.quota_cpus != found.fast.quota_cpus
    if grown is None or not found.explains(grown, SHARE_WITH_A_SETTING if tighter else LEAST_SHARE):
        return ""
    quota = "" if found.slow.quota_cpus is None else f" of {found.slow.quota_cpus:g} CPUs"
    return f"CPU quota throttling: the quota{quota} stopped it for {_ms(grown)} of each run"


def _stolen(found: Slower) -> str:
    grown = found.grown_ms("steal_ms")
    return f"steal: the hypervisor withheld {_ms(grown)} per run" if grown and found.explains(grown) else ""


def _threads(found: Slower) -> str:
    slow, fast = found.slow.threads, found.fast.threads
    return f"fewer threads: {slow} instead of {fast}" if slow and fast and slow < fast else ""


def _cpuset(found: Slower) -> str:
    slow, fast = len(found.slow.cpus), len(found.fast.cpus)
    if not 0 < slow < fast:
        return ""
    crowded = slow < (found.slow.threads or 1) or found.explains(_wait_ms(found), SHARE_WITH_A_SETTING)
    return f"cpuset: it may use {slow} CPU{'s' * (slow > 1)} instead of {fast}" if crowded else ""


def _weight(found: Slower) -> str:
    waited = _wait_ms(found)
    if waited is None or not found.explains(waited, SHARE_WITH_A_SETTING):
        return ""
    slow, fast = found.slow, found.fast
    lower = []
    if slow.nice is not None and fast.nice is not None and slow.nice > fast.nice:
        lower.append(f"nice {slow.nice} instead of {fast.nice}")
    if slow.policy != fast.policy and slow.policy in ("batch", "idle"):
        lower.append(f"policy {slow.policy} instead of {fast.policy}")
    if slow.cpu_weight is not None and fast.cpu_weight is not None and slow.cpu_weight < fast.cpu_weight:
        lower.append(f"a group's weight of {slow.cpu_weight:.3g} instead of {fast.cpu_weight:.3g}")
    return f"scheduling weight: {', '.join(lower)}; it waited {_ms(waited)} per run for a CPU" if lower else ""


def _crowded(found: Slower) -> str:
    waited = _wait_ms(found)
    if waited is None or not found.explains(waited):
        return ""
    return f"busy CPUs: it waited {_ms(waited)} more per run for a CPU than the other side, with the same settings"


def _frequency(found: Slower) -> str:
    slow, fast = found.slow.cpu_mhz, found.fast.cpu_mhz
    if not slow or not fast or 100.0 * (fast / slow - 1.0) < max(LEAST_PERCENT, LEAST_SHARE * found.percent):
        return ""
    return f"CPU frequency: {slow:.0f} MHz instead of {fast:.0f} MHz"


def _storage(found: Slower) -> str:
    slow, fast = found.slow.major_faults, found.fast.major_faults
    if slow is None or fast is None or slow - fast < FAULTS_PER_RUN:
        return ""
    return f"storage: {digits(slow, 2)} pages per run were read from storage, {digits(fast, 2)} on the other side"


def _numa(found: Slower) -> str:
    slow, fast = found.slow.remote_memory_share, found.fast.remote_memory_share
    if slow is None or fast is None or slow - fast < DIFFERENT_SHARES or not _computes_longer(found):
        return ""
    return (
        f"NUMA: {100 * slow:.0f} % of its memory is on another node than its CPUs, {100 * fast:.0f} % on the other side"
    )


def _huge_pages(found: Slower) -> str:
    slow, fast = found.slow.huge_share, found.fast.huge_share
    if slow is None or fast is None or fast - slow < DIFFERENT_SHARES or not _computes_longer(found):
        return ""
    setting = "" if found.slow.huge_pages == found.fast.huge_pages else f" (setting: {found.slow.huge_pages})"
    return f"huge pages: {100 * slow:.0f} % of its memory is in huge pages instead of {100 * fast:.0f} %{setting}"


def _pageable(found: Slower) -> str:
    slow, fast = found.slow.host_memory, found.fast.host_memory
    if slow != "pageable" or fast in (None, "pageable"):
        return ""
    return f"pageable copies: its host memory is pageable, the other side's is {fast}"


def _host_calls(found: Slower) -> str:
    slow, fast = found.slow, found.fast
    if slow.kernel_us is None or fast.kernel_us is None or slow.calls_us is None or fast.calls_us is None:
        return ""
    if abs(slow.kernel_us - fast.kernel_us) > EQUAL_KERNELS * max(slow.kernel_us, fast.kernel_us):
        return ""
    grown_us, typical_ms = slow.calls_us - fast.calls_us, found.judged_ms
    # A run may make several such calls, so a part of the difference in one of them is enough.
    if typical_ms is None or grown_us <= 0.0 or grown_us / 1e3 < SHARE_WITH_A_SETTING * typical_ms:
        return ""
    return (
        f"host calls: launch and wait take {digits(slow.calls_us, 2)} µs instead of {digits(fast.calls_us, 2)} µs, "
        f"while a kernel takes the same {digits(slow.kernel_us, 3)} µs"
    )


# What was counted while it ran comes first, then settings with what they did, then what only fits.
CAUSES: dict[str, Callable[[Slower], str]] = {
    "throttling": _throttled,
    "threads": _threads,
    "cpuset": _cpuset,
    "weight": _weight,
    "steal": _stolen,
    "busy-cpus": _crowded,
    "frequency": _frequency,
    "pageable": _pageable,
    "host-calls": _host_calls,
    "storage": _storage,
    "numa": _numa,
    "huge-pages": _huge_pages,
}


def _wait_ms(found: Slower) -> float | None:
    """Return the additional wait for a CPU; that of all threads, which wait beside each other, counts once."""
    grown = found.grown_ms("run_wait_ms")
    return None if grown is None else grown / max(1, found.slow.threads or 1)


def _computes_longer(found: Slower) -> bool:
    """Whether the additional time is CPU time: slow memory is, waiting is not."""
    grown = found.grown_ms("cpu_ms")
    return found.explains(None if grown is None else grown / max(1, found.slow.threads or 1))


def _ms(value: float | None) -> str:
    return f"{digits(value or 0.0, 2)} ms"
