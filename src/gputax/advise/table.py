"""Input of the models: runs by technique and number of tenants, from `sharing.json` or a table published by others."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputax.advise.targets import PERCENTILES, TOKEN_PERCENTILES
from gputax.errors import ResultsError, unknown_name
from gputax.plan.notices import Notice, remarks
from gputax.plan.techniques import TECHNIQUES, Technique
from gputax.results.documents.base import WarningRecord
from gputax.results.documents.sharing import SharedCell, SharingRecord, TenantResult
from gputax.results.importers.record_source import read_notice
from gputax.results.reading import SHARING
from gputax.results.store import document_path, read_document
from gputax.text import digits, printable

# Above this, the mean over tenants says little about the worst one.
UNEVEN_PERCENT = 5.0
CAP_AS_SIZE = 1.1
MB_PER_GB = 1024.0


@dataclass(frozen=True)
class Run:
    """One measurement: the average over its tenants."""

    mean_ms: float
    percentiles_ms: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Only percentiles with enough samples."""
    aggregate_per_s: float | None = None
    """None if the source does not have it."""
    worst_mean_ms: float | None = None
    """Mean of the slowest tenant; None if the source has no figures per tenant."""
    worst_percentiles_ms: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """The largest per tenant, only if every tenant has one."""
    slowest_per_s: float | None = None
    """Rate of the tenant with the fewest inferences."""
    repeat: int | None = None
    """Runs of one repeat share what the machine did then; None if the source has no repeats."""


@dataclass(frozen=True)
class Point:
    """A number of tenants and every run with it."""

    tenants: int
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Series:
    """One technique: its points, and how many tenants it has room for."""

    technique: Technique
    points: tuple[Point, ...]
    entitlement: str = ""
    capacity: int | None = None
    """The most tenants that this configuration admits; None if the source gives no limit."""
    capacity_why: str = ""
    """The reason for the limit, e.g. `10 GB each of 80 GB`."""
    notices: tuple[Notice, ...] = ()
    changing_slices: bool = False
    """The tenants' slices had different sizes, so the points do not belong to one partition."""

    @property
    def tenants(self) -> tuple[int, ...]:
        """The measured numbers of tenants."""
        return tuple(point.tenants for point in self.points)

    def only(self, tenants: Sequence[int]) -> Series:
        """Return the series with only these numbers of tenants."""
        return dataclasses.replace(self, points=tuple(point for point in self.points if point.tenants in tenants))


@dataclass(frozen=True)
class Table:
    """All techniques of one source, and the claims that its numbers allow."""

    title: str
    device_label: str
    source: tuple[str, ...]
    """Who measured what and where, one line each."""
    series: tuple[Series, ...]
    stand_in: bool = False
    """No GPU was measured: the advice is valid only for this stand-in."""
    published: bool = False
    claim: str = ""
    notices: tuple[Notice, ...] = ()


def from_record(record: SharingRecord) -> Table:
    """Return the valid cells of an experiment by technique."""
    usable = [cell for cell in record.cells if cell.valid and len(cell.results) == cell.tenants]
    names = dict.fromkeys(cell.technique for cell in usable)
    known = [name for name in TECHNIQUES if name in names]
    return Table(
        title=f"{printable(record.workload)} in {printable(record.place)}",
        device_label=printable(record.device_label),
        source=(f"measured by gputax {printable(record.gputax_version)} at {printable(record.timestamp)}",),
        series=tuple(_series(name, [cell for cell in usable if cell.technique == name], record) for name in known),
        stand_in=record.device != "cuda",
        claim=printable(record.claim, 600),
        notices=(
            *_notices(record, len(usable), [name for name in names if name not in TECHNIQUES]),
            *_warnings(record.warnings, usable),
        ),
    )


def _notices(record: SharingRecord, usable: int, unknown: Sequence[str]) -> tuple[Notice, ...]:
    found = []
    if usable < len(record.cells):
        count = len(record.cells) - usable
        cells = "1 cell" if count == 1 else f"{count} cells"
        found.append(Notice("cells-not-used", f"not used: {cells}, invalid or without one of the tenants", count))
    disturbed = sum(bool(cell.disturbed) for cell in record.cells)
    if disturbed and not record.accepts_disturbed:
        text = (
            f"{disturbed} of {len(record.cells)} cells were measured on a disturbed machine: do not rely on this advice"
        )
        found.append(Notice("disturbed", text))
    if not record.complete:
        found.append(Notice("unfinished", "the experiment is not finished: the models use the cells measured so far"))
    if unknown:
        names = ", ".join(map(printable, unknown))
        found.append(Notice("unknown-technique", f"not used, because this version does not know them: {names}"))
    return tuple(found)


def _warnings(of_all: Sequence[WarningRecord], cells: Sequence[SharedCell]) -> tuple[Notice, ...]:
    """Return the experiment's warnings, and the worst cell warning of each kind."""
    found = [read_notice(each) for each in of_all]
    for remark in remarks((cell.cell, warning.notice) for cell in cells for warning in cell.warnings):
        more = f"; worst of {remark.count} cells" if remark.count > 1 else ""
        text = f"{remark.worst.text} ({remark.worst_place}{more})"
        found.append(dataclasses.replace(remark.worst, text=printable(text, 600)))
    return tuple(found)


def _series(name: str, cells: Sequence[SharedCell], record: SharingRecord) -> Series:
    technique = TECHNIQUES[name]
    counts = sorted({cell.tenants for cell in cells})
    points = tuple(Point(count, tuple(_run(cell) for cell in cells if cell.tenants == count)) for count in counts)
    shares = {result.entitlement_share for cell in cells for result in cell.results}
    texts = dict.fromkeys(printable(result.entitlement) for cell in cells for result in cell.results)
    several = len(shares) > 1 or (shares == {None} and len(texts) > 1)
    share = next(iter(shares)) if len(shares) == 1 else None
    capacity, why = _capacity(technique, share, record, max(counts)), ""
    fitting = memory_room(_memory_gb(cells), max(counts))
    if fitting is not None and (capacity is None or fitting[0] < capacity):
        capacity, why = fitting
    return Series(
        technique,
        points,
        entitlement=" | ".join(texts),
        capacity=capacity,
        capacity_why=why,
        notices=(*_uneven(points), *_changing_cap(technique, several)),
        changing_slices=technique.bound == "slice" and several,
    )


def _capacity(technique: Technique, share: float | None, record: SharingRecord, measured: int) -> int | None:
    """Return how many tenants fit with the measured entitlement."""
    if technique.single:
        return 1
    if technique.bound == "none":
        return None
    if share is not None and 0.0 < share < 1.0:
        return max(measured, math.floor(1.0 / share + 0.01))
    if technique.bound == "slice":
        slices = record.plan.get("slices")
        return max(measured, slices if isinstance(slices, int) else 0)
    return None


def memory_room(each_and_whole_gb: tuple[float, float] | None, measured: int) -> tuple[int, str] | None:
    """Return how many tenants fit into the device's memory, and the reason; None if the source does not say."""
    if each_and_whole_gb is None:
        return None
    each, whole = each_and_whole_gb
    return max(measured, math.floor(whole / each + 0.01)), f"{digits(each, 3)} GB each of {digits(whole, 3)} GB"


def _memory_gb(cells: Sequence[SharedCell]) -> tuple[float, float] | None:
    """Return the cap on a tenant's memory and the device's size, from the evidence of the technique."""
    caps, sizes = set(), set()
    for cell in cells:
        limits, reports = cell.evidence.get("limits"), cell.evidence.get("driver_reports")
        caps.add(limits.get("memory_cap_mb") if isinstance(limits, dict) else None)
        for report in reports if isinstance(reports, list) else ():
            sizes.add(report.get("memory_total_mb") if isinstance(report, dict) else None)
    if len(caps) != 1 or len(sizes) != 1:
        return None
    cap_mb, size_mb = (_size_mb(each) for each in (*caps, *sizes))
    # If the driver reports the cap as the device's size, the real size is unknown.
    if cap_mb is None or size_mb is None or size_mb <= CAP_AS_SIZE * cap_mb:
        return None
    return cap_mb / MB_PER_GB, size_mb / MB_PER_GB


def _size_mb(found: object) -> float | None:
    return float(found) if isinstance(found, int | float) and 0.0 < found < math.inf else None


def _uneven(points: Sequence[Point]) -> tuple[Notice, ...]:
    worst = [
        (100.0 * (run.worst_mean_ms / run.mean_ms - 1.0), point.tenants)
        for point in points
        for run in point.runs
        if run.worst_mean_ms is not None
    ]
    percent, tenants = max(worst, default=(0.0, 0))
    if percent <= UNEVEN_PERCENT:
        return ()
    text = f"tenants were not served equally: of {tenants}, the worst mean was {percent:.0f} % above the overall mean"
    return (Notice("uneven-tenants", text, percent),)


def _changing_cap(technique: Technique, several: bool) -> tuple[Notice, ...]:
    if technique.bound != "cap" or not several:
        return ()
    return (Notice("changing-cap", "the cap differed between tenants or cells: the model mixes cap and contention"),)


def _run(cell: SharedCell) -> Run:
    mean_ms = cell.mean_ms or _mean_ms(cell.results)
    of_all = {name: getattr(cell, f"{name}_ms") for name in PERCENTILES}
    percentiles = {name: value for name, value in of_all.items() if value is not None}
    if cell.mean_ms is None:
        percentiles = _typical_percentiles(cell.results, mean_ms)
    percentiles |= _of_tokens(cell.tokens)
    return Run(
        mean_ms,
        percentiles,
        cell.aggregate_per_s,
        worst_mean_ms=max(result.mean_ms for result in cell.results),
        worst_percentiles_ms=_worst_percentiles(cell.results),
        slowest_per_s=min(result.throughput_per_s for result in cell.results),
        repeat=cell.repeat,
    )


def _worst_percentiles(results: Sequence[TenantResult]) -> dict[str, float]:
    found = {name: [getattr(result, f"{name}_ms") for result in results] for name in PERCENTILES}
    found |= {name: [result.tokens.get(f"{name}_ms") for result in results] for name in TOKEN_PERCENTILES}
    return {name: max(values) for name, values in found.items() if None not in values}


def _of_tokens(figures: Mapping[str, float | None]) -> dict[str, float]:
    """Return the percentiles of ttft and tpot that a cell has."""
    values = {name: figures.get(f"{name}_ms") for name in TOKEN_PERCENTILES}
    return {name: value for name, value in values.items() if value is not None}


def _mean_ms(results: Sequence[TenantResult]) -> float:
    """Return total time over total inferences, like the users' own query; a fast tenant contributes more of them."""
    return sum(result.mean_ms * result.inferences for result in results) / sum(result.inferences for result in results)


def _typical_percentiles(results: Sequence[TenantResult], mean_ms: float) -> dict[str, float]:
    """Estimate percentiles of a document that has only those per tenant, from their usual ratio to the mean."""
    found = {}
    for name in PERCENTILES:
        values = [getattr(result, f"{name}_ms") for result in results]
        if all(value is not None for value in values):
            logs = [math.log(value / result.mean_ms) for value, result in zip(values, results, strict=True)]
            found[name] = mean_ms * math.exp(sum(logs) / len(logs))
    return found


PUBLISHED: dict[str, str] = {"a100-nos": "a100_nos.toml"}
PUBLISHED_PREFIX = "published:"
_MS = {"s": 1000.0, "ms": 1.0}


def read_table(results: str) -> Table:
    """Read a directory with `sharing.json`, that file itself, or `published:NAME`."""
    if results.startswith(PUBLISHED_PREFIX):
        return published_table(results.removeprefix(PUBLISHED_PREFIX))
    record = _measured(Path(results))
    if not record.cells and (record.neighbours or record.isolation or "aggressors" in record.plan):
        raise _neighbours_only(record, results)
    return from_record(record)


def _neighbours_only(record: SharingRecord, results: str) -> ResultsError:
    names = dict.fromkeys([*(row.technique for row in record.neighbours), *(row.technique for row in record.isolation)])
    tech = f"--tech {','.join(map(printable, names))} " if names else ""
    return ResultsError(
        "this is a neighbours experiment: it measures how one tenant slows another, not how latency grows with "
        "the number of tenants, which is what advise fits",
        where=printable(results, 4096),
        next_step=f"gputax share --env {printable(record.place)} {tech}--tenants 1,3,5,7 --out DIR, then "
        "gputax advise DIR; gputax report shows the neighbours",
    )


def _measured(path: Path) -> SharingRecord:
    file = document_path(SHARING, path)
    if not file.exists():
        raise ResultsError(
            SHARING.missing,
            where=printable(str(file), 4096),
            next_step=f"{SHARING.command}, or try the published data: --published a100-nos",
        )
    return read_document(SHARING, file)


def published_table(name: str) -> Table:
    """Read a table that ships with gputax but was published by others."""
    if name not in PUBLISHED:
        raise unknown_name("published table", name, PUBLISHED)
    data = tomllib.loads((Path(__file__).with_name("published") / PUBLISHED[name]).read_text())
    return Table(
        title=data["title"],
        device_label=data["device_label"],
        source=(
            f"published by {data['project']}, {data['demo']}; not measured by gputax",
            f"testbed: {data['testbed']}",
            f"workload: {data['workload']}",
            f"numbers: {data['numbers']}",
            f"date: {data['date']}",
        ),
        series=tuple(
            _published_series(each, facts, _MS[data["unit"]], data["device_memory_gb"])
            for each, facts in data["techniques"].items()
        ),
        published=True,
    )


def _published_series(name: str, facts: dict[str, Any], ms: float, device_memory_gb: float) -> Series:
    found = (Point(int(tenants), (Run(mean_ms=value * ms),)) for tenants, value in facts["mean"].items())
    points = tuple(sorted(found, key=lambda point: point.tenants))
    room = memory_room((facts["memory_gb"], device_memory_gb), points[-1].tenants)
    if "capacity" in facts:
        room = (facts["capacity"], facts["entitlement"])
    capacity, why = room or (None, "")
    return Series(TECHNIQUES[name], points, entitlement=facts["entitlement"], capacity=capacity, capacity_why=why)
