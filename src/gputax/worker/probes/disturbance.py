"""Find disturbances in a telemetry series; pure, so that a stored series can be judged again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gputax.plan.notices import Notice
from gputax.worker.probes.telemetry import TelemetrySeries

# NVML's clock event reasons that slow a GPU against the user's intention. Not listed: idle (1), clocks set by the
# user (2) and display clocks (256), which do not disturb a compute load.
SLOWDOWNS = {
    0x04: "software power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
BUSY_NEIGHBOURS = "busy-neighbours"


@dataclass(frozen=True)
class Limits:
    """Limits above which a disturbance gets a notice; `CELL_LIMITS` and `PAIR_LIMITS` are those of a disturbed cell."""

    steal_percent: float = 1.0
    others_percent_of_core: float = 10.0
    others_percent_of_cpus: float = 0.0
    """Of all CPUs that the worker may use: the larger of the two limits holds, so that a large machine may do more."""
    tick_floor_ms: float = 30.0
    """/proc/stat counts in ticks of 10 ms; fewer than three of them may be rounding."""
    throttled_percent: float = 0.0
    gpu_throttled_percent: float = 0.0
    jump_ms: float = 5.0
    slew: float = 0.001
    clock_drop_percent: float = 5.0
    swapped_mb_per_s: float = 1.0
    busy_gpu_percent: float = 50.0
    """Clocks count only while the GPU is at least this busy: an idle GPU lowers them by design."""


# A cell beyond these is disturbed: no verdict comes from it. Virtual machines have 1 to 3 % of steal all the time.
CELL_LIMITS = Limits(
    steal_percent=5.0,
    others_percent_of_core=25.0,
    others_percent_of_cpus=5.0,
    throttled_percent=5.0,
    gpu_throttled_percent=10.0,
    clock_drop_percent=10.0,
)
# Both halves of a pair meet the same disturbance, so it widens the interval and shifts it little. Beyond these, others
# have more of the machine than the measurement has, and what a layer costs there is not what it costs.
PAIR_LIMITS = Limits(
    steal_percent=20.0,
    others_percent_of_core=50.0,
    others_percent_of_cpus=60.0,
    throttled_percent=20.0,
    gpu_throttled_percent=50.0,
    clock_drop_percent=20.0,
)


def beyond(series: TelemetrySeries, limits: Limits, expected: Collection[str] = ()) -> list[Notice]:
    """Return the disturbances that take a verdict away, except the codes that are expected by design.

    A clock that jumped makes a cell invalid, and a GPU that others have open may be idle: neither is among them.
    """
    return [notice for rule in DISTURBING for notice in rule(series, limits) if notice.code not in expected]


def reasons(notices: Iterable[Notice]) -> tuple[str, ...]:
    """Return each disturbance as one clause with its limit."""
    texts = (notice.text.partition(": ")[0] for notice in notices)
    return tuple(dict.fromkeys(text[0].lower() + text[1:] for text in texts))


def in_most(spans: Sequence[Sequence[Notice]]) -> list[Notice]:
    """Return the disturbances of more than half of the spans, each kind once with its worst value."""
    worst: dict[str, Notice] = {}
    for notice in (each for span in spans for each in span):
        if notice.code not in worst or abs(notice.value or 0.0) > abs(worst[notice.code].value or 0.0):
            worst[notice.code] = notice
    counts = Counter(code for span in spans for code in {notice.code for notice in span})
    return [notice for code, notice in worst.items() if 2 * counts[code] > len(spans)]


def disturbances(
    series: TelemetrySeries, *, governors: Sequence[str] | None = None, limits: Limits | None = None
) -> list[Notice]:
    """Return a notice for each disturbance in the series, and for a governor that varies the clock."""
    found = [notice for rule in RULES for notice in rule(series, limits or Limits())]
    return [*found, *_governor(governors or ())]


def span_ms(series: TelemetrySeries) -> float:
    """Return the time from the first to the last sample."""
    times = _known(series, "time_ns")
    return (times[-1] - times[0]) / 1e6 if times else 0.0


def steal_percent(series: TelemetrySeries) -> float | None:
    """Return the share of our CPUs' time that the hypervisor gave to others."""
    steal, cpus, span = _known(series, "steal_ms"), _known(series, "allowed_cpus"), span_ms(series)
    return 100 * steal[-1] / (cpus[0] * span) if steal and cpus and span else None


def others_percent_of_core(series: TelemetrySeries) -> float | None:
    """Return how busy other processes were on our CPUs, in percent of one core."""
    others, span = _known(series, "others_ms"), span_ms(series)
    return 100 * others[-1] / span if others and span else None


def _steal(series: TelemetrySeries, limits: Limits) -> Iterator[Notice]:
    percent, steal = steal_percent(series), _known(series, "steal_ms")
    if percent is not None and percent > limits.steal_percent and steal[-1] >= limits.tick_floor_ms:
        yield Notice(
            "cpu-steal",
            f"The hypervisor withheld {percent:.1f} % of this worker's CPU time (steal, limit"
            f" {limits.steal_percent:g} %): latencies contain waiting that no layer under test caused.",
            percent,
        )


def _others(series: TelemetrySeries, limits: Limits) -> Iterator[Notice]:
    percent, others, cpus = others_percent_of_core(series), _known(series, "others_ms"), _known(series, "allowed_cpus")
    limit = others_limit(limits, cpus[0] if cpus else 1.0)
    if percent is not None and percent > limit and others[-1] >= limits.tick_floor_ms:
        yield Notice(
            BUSY_NEIGHBOURS,
            f"Other processes used {percent:.0f} % of one core on this worker's CPUs (limit"
            f" {limit:g} %): they take cache and CPU time from the measurement.",
            percent,
        )


def others_limit(limits: Limits, cpus: float) -> float:
    """Return the limit on other processes in percent of one core, for a worker that may use so many CPUs."""
    return max(limits.others_percent_of_core, limits.others_percent_of_cpus * cpus)


def _throttled(series: TelemetrySeries, limits: Limits) -> Iterator[Notice]:
    throttled, periods = _known(series, "throttled_ms"), _known(series, "throttled_periods")
    if throttled and throttled[-1] > limits.throttled_percent / 100 * span_ms(series):
        count = f" in {periods[-1]:.0f} periods" if periods else ""
        yield Notice(
            "cpu-throttled",
            f"The cgroup's CPU quota stopped this worker for {throttled[-1]:.0f} ms{count}: the tail"
            " latencies are those of the quota. Use no more threads than the quota has CPUs, or raise it.",
            throttled[-1],
        )


def _clock_jump(series: TelemetrySeries, limits: Limits) -> Iterator[Notice]:
    # Linux slews both clocks equally, so their difference changes only when the wall clock is set, in a
    # leap second, or if the machine slept; 0.1 % is allowed for systems that slew the wall clock alone.
    offsets, times = _known(series, "wall_minus_monotonic_ns"), _known(series, "time_ns")
    jumps = [
        (after - before) / 1e6
        for before, after, start, end in zip(offsets, offsets[1:], times, times[1:], strict=False)
        if abs(after - before) > limits.jump_ms * 1e6 + limits.slew * (end - start)
    ]
    if jumps:
        largest = max(jumps, key=abs)
        yield Notice(
            "clock-jump",
            f"The wall clock jumped by {largest:+.0f} ms during the run: LoadGen takes its latencies from it"
            " and is wrong by that amount; gputax's own timestamps are monotonic and are not affected.",
            largest,
        )


def _gpu_throttled(series: TelemetrySeries, limits: Limits) -> Iterator[Notice]:
    masks = [int(mask) for mask in _known(series, "gpu_throttle_reasons")]
    for bit, name in SLOWDOWNS.items():
        share = 100 * sum(bool(mask & bit) for mask in masks) / len(masks) if masks else 0.0
        if share > limits.gpu_throttled_percent:
            yield Notice(
                "gpu-throttled",
                f"The GPU lowered its clocks ({name}) in {share:.0f} % of the samples: it was slower than it"
                " can be, for a reason outside the layer under test.",
                share,
            )


def _gpu_clock_drop(series: TelemetrySeries, limits: Limits) -> Iterator[Notice]:
    clocks = series.get("sm_clock_mhz", [])
    usage = series.get("gpu_utilisation_percent", [None] * len(clocks))
    busy = [
        clock
        for clock, used in zip(clocks, usage, strict=True)
        if clock is not None and (used is None or used >= limits.busy_gpu_percent)
    ]
    if not busy:
        return
    peak = max(busy)
    lowest = min(busy[busy.index(peak) :])  # before the peak is the ramp from idle
    percent = 100 * (peak - lowest) / peak if peak else 0.0
    if percent > limits.clock_drop_percent:
        yield Notice(
            "gpu-clock-drop",
            f"The GPU's clock fell by {percent:.0f} % during the run, from {peak:.0f} to {lowest:.0f} MHz"
            f" (limit {limits.clock_drop_percent:g} %): early and late samples are not comparable.",
            percent,
        )


def _gpu_shared(series: TelemetrySeries, _: Limits) -> Iterator[Notice]:
    foreign, pids = _known(series, "foreign_gpu_processes"), _known(series, "foreign_gpu_pid")
    every = _known(series, "gpu_processes")
    if foreign and max(foreign) > 0:
        yield Notice(
            "gpu-shared",
            f"{max(foreign):.0f} other process(es) had the GPU open during the run (pid {pids[0]:.0f}): their"
            " work and memory are part of the measurement.",
            max(foreign),
        )
    elif not foreign and every and max(every) > 1:
        yield Notice(
            "gpu-shared",
            f"{max(every):.0f} processes had the GPU open during the run, and from inside this container's"
            " PID namespace ours cannot be distinguished from others: the work of foreign processes is part of"
            " the measurement.",
            max(every),
        )


def _affinity(series: TelemetrySeries, _: Limits) -> Iterator[Notice]:
    cpus = _known(series, "allowed_cpus")
    if any(_known(series, "affinity_changed")):
        yield Notice(
            "affinity-changed",
            f"The CPUs that this worker may use changed during the run (from {cpus[0]:.0f} to {cpus[-1]:.0f}"
            " CPUs): early and late samples had different processors.",
            cpus[-1] - cpus[0],
        )


def _governor(governors: Sequence[str]) -> Iterator[Notice]:
    slow = sorted(set(governors) - {"performance"})
    if slow:
        yield Notice(
            "cpu-governor",
            f"The CPU frequency governor is {', '.join(slow)}, not performance: the clock follows the load,"
            " so short and sparse requests look slower than necessary.",
            None,
        )


def _known(series: TelemetrySeries, name: str) -> list[float]:
    return [value for value in series.get(name, []) if value is not None]


Rule = Callable[[TelemetrySeries, Limits], Iterator[Notice]]
DISTURBING: tuple[Rule, ...] = (_steal, _others, _throttled, _gpu_throttled, _gpu_clock_drop, _affinity)
RULES: tuple[Rule, ...] = (*DISTURBING, _clock_jump, _gpu_shared)
