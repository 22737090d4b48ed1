"""Sources of numbers: a gputax results directory, or a table published by others."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from gputax.advise.table import Point, Run, Series, Table, from_record, memory_room
from gputax.errors import ResultsError, unknown_name
from gputax.plan.techniques import TECHNIQUES
from gputax.results.documents.sharing import SharingRecord
from gputax.results.importers.source import printable
from gputax.results.kinds import SHARING
from gputax.results.store import document_path, read_document

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
            _series(each, facts, _MS[data["unit"]], data["device_memory_gb"])
            for each, facts in data["techniques"].items()
        ),
        published=True,
    )


def _series(name: str, facts: dict[str, Any], ms: float, device_memory_gb: float) -> Series:
    found = (Point(int(tenants), (Run(mean_ms=value * ms),)) for tenants, value in facts["mean"].items())
    points = tuple(sorted(found, key=lambda point: point.tenants))
    room = memory_room((facts["memory_gb"], device_memory_gb), points[-1].tenants)
    if "capacity" in facts:
        room = (facts["capacity"], facts["entitlement"])
    capacity, why = room or (None, "")
    return Series(TECHNIQUES[name], points, entitlement=facts["entitlement"], capacity=capacity, capacity_why=why)
