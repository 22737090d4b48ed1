"""All facts of a worker's environment, and one second's look at who else uses the machine."""

from __future__ import annotations

import dataclasses
import importlib
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputax.worker.probes.disturbance import Limits, others_limit, others_percent_of_core, steal_percent
from gputax.worker.probes.files import read_fields
from gputax.worker.probes.host import MB, cpu_governors, host_facts, package_versions
from gputax.worker.probes.limits import cpu_allowance
from gputax.worker.probes.nvidia import device_facts
from gputax.worker.probes.telemetry import Telemetry

LOOK_S = 1.0
MOST_NAMED = 3
# Fields of /proc/PID/stat behind the name: utime and stime.
UTIME, STIME = 11, 12


@dataclass(frozen=True)
class Process:
    """A process that is not ours, and the CPU time it used."""

    pid: int
    name: str
    percent_of_core: float


@dataclass(frozen=True)
class Trouble:
    """One thing that would disturb a measurement."""

    text: str
    passes: bool
    """Whether waiting may help."""


@dataclass(frozen=True)
class Look:
    """What was seen; unknown values are None."""

    seconds: float
    cpus: int
    steal_percent: float | None = None
    others_percent_of_core: float | None = None
    swapped_mb_per_s: float | None = None
    governors: tuple[str, ...] = ()
    busiest: tuple[Process, ...] = ()
    """Processes of others that can be seen from here, the busiest first; from inside a container there are none."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as the worker's `describe` reports it."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Look:
        """Rebuild it; keys that an older or newer worker does not know are defaults."""
        known = {each.name: data[each.name] for each in dataclasses.fields(Look) if each.name in data}
        busiest = tuple(Process(**each) for each in known.pop("busiest", ()))
        return Look(
            **{"seconds": 0.0, "cpus": 1, **known, "governors": tuple(known.get("governors") or ())}, busiest=busiest
        )

    def troubles(self, limits: Limits) -> tuple[Trouble, ...]:
        """Return everything beyond the limits, each in a few words."""
        found = []
        others, steal, swapped = self.others_percent_of_core, self.steal_percent, self.swapped_mb_per_s
        if others is not None and others > others_limit(limits, self.cpus):
            named = ", ".join(f"{each.name} {each.percent_of_core:.0f} %" for each in self.busiest)
            found.append(
                Trouble(f"other processes use {others:.0f} % of a core" + (f" ({named})" if named else ""), True)
            )
        if steal is not None and steal > limits.steal_percent:
            found.append(Trouble(f"the hypervisor withholds {steal:.1f} % of the CPU time", True))
        if swapped is not None and swapped > limits.swapped_mb_per_s:
            found.append(Trouble(f"the machine swaps {swapped:.0f} MB/s", True))
        slow = sorted(set(self.governors) - {"performance"})
        if slow:
            found.append(Trouble(f"the CPU governor is {', '.join(slow)}", False))
        return tuple(found)


def look(seconds: float = LOOK_S, root: Path = Path("/")) -> Look:
    """Watch for so long, idle; `root` can be faked in tests."""
    telemetry = Telemetry(interval_s=seconds, root=root)
    before, swapped_before, started_s = _cpu_ticks(root), _swapped_pages(root), time.monotonic()
    telemetry.start()
    time.sleep(seconds)
    series = telemetry.stop()
    took_s = time.monotonic() - started_s
    after, swapped_after = _cpu_ticks(root), _swapped_pages(root)
    pages = None if swapped_before is None or swapped_after is None else swapped_after - swapped_before
    return Look(
        seconds=seconds,
        cpus=int(series["allowed_cpus"][0] or 1),
        steal_percent=steal_percent(series),
        others_percent_of_core=others_percent_of_core(series),
        swapped_mb_per_s=None if pages is None else pages * os.sysconf("SC_PAGE_SIZE") / MB / took_s,
        governors=tuple(cpu_governors(root)),
        busiest=busiest(before, after, took_s, (os.getpid(), os.getppid())),
    )


def busiest(
    before: Mapping[int, tuple[str, int]],
    after: Mapping[int, tuple[str, int]],
    seconds: float,
    ours: Iterable[int],
    ticks_per_s: int | None = None,
) -> tuple[Process, ...]:
    """Return the few processes that used at least 5 % of a core, from their CPU ticks at both ends; pure."""
    percent_per_tick = 100.0 / ((ticks_per_s or os.sysconf("SC_CLK_TCK")) * seconds)
    own = set(ours)
    found = [
        Process(pid, name, (ticks - before.get(pid, (name, 0))[1]) * percent_per_tick)
        for pid, (name, ticks) in after.items()
        if pid not in own
    ]
    busy = [each for each in found if each.percent_of_core >= 5.0]
    return tuple(sorted(busy, key=lambda each: -each.percent_of_core)[:MOST_NAMED])


def _cpu_ticks(root: Path) -> dict[int, tuple[str, int]]:
    """Return name and CPU ticks of every process that can be seen; 15 µs for each."""
    found = {}
    for entry in os.scandir(root / "proc"):
        if entry.name.isdigit():
            try:
                text = (Path(entry.path) / "stat").read_bytes().decode(errors="replace")
            except OSError:
                continue  # it has ended
            # The name is in parentheses and may hold any character, also these.
            name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
            found[int(entry.name)] = (name, int(fields[UTIME]) + int(fields[STIME]))
    return found


def _swapped_pages(root: Path) -> int | None:
    fields = read_fields(root / "proc/vmstat")
    known = [int(fields[name]) for name in ("pswpin", "pswpout") if fields.get(name, "").isdigit()]
    return sum(known) if known else None


def describe(*, with_engines: bool = False, listen_s: float = 0.0) -> dict[str, Any]:
    """Return the facts as JSON-able data.

    `with_engines` imports ONNX Runtime to ask for its providers (80 ms, 36 MB: not for a worker that may not
    need it); `listen_s` watches that long for steal and other processes.
    """
    facts = {
        "host": host_facts(),
        "devices": device_facts(),
        "cpu_allowance": cpu_allowance().to_dict(),
        "packages": package_versions(),
        "loadgen": _importable("mlperf_loadgen"),
    }
    if with_engines:
        facts["onnxruntime"] = _onnxruntime()
    if listen_s > 0:
        facts["noise"] = look(listen_s).to_dict()
    return facts


def _importable(module: str) -> dict[str, Any]:
    try:
        importlib.import_module(module)
    # A wheel for another libc or a broken install can raise almost anything here.
    except Exception as error:
        return {"importable": False, "why": f"{type(error).__name__}: {error}"}
    return {"importable": True, "why": None}


def _onnxruntime() -> dict[str, Any]:
    found = _importable("onnxruntime")
    if not found["importable"]:
        return {**found, "providers": [], "cuda_version": None}
    module = importlib.import_module("onnxruntime")
    return {
        **found,
        "providers": list(module.get_available_providers()),
        "cuda_version": getattr(module, "cuda_version", None) or None,
    }
