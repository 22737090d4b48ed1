"""Made-up sharing documents for the tests of reports: every number here is invented, none was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gputax.report.sources import SharingSource, Sources
from gputax.results.documents.base import WarningRecord
from gputax.results.documents.sharing import (
    CrossCheck,
    IsolationRow,
    NeighbourRow,
    ObtainedRow,
    SharedCell,
    SharedFigure,
    SharedRow,
    SharingRecord,
    TenantResult,
)
from tests.builders.documents import CPU, STAMP

GPU = "GPU (Made-up A100)"
TENANTS = (1, 3, 5, 7)
REPEATS = 3
# technique: what a tenant may use, its mean alone in ms, and what each further tenant adds
TECHNIQUES: dict[str, tuple[str, float, float]] = {
    "time-slicing": ("up to all of it", 88.0, 99.5),
    "mps": ("14 % of the SMs, 11.4 GB", 88.0, 38.6),
    "mig": ("1g.10gb", 342.0, 0.4),
    "cpu-shared": ("up to all cores", 60.0, 27.0),
    "cpu-quota": ("2/7 of a core", 171.0, 0.2),
    "proxy": ("up to all of it", 0.5, 0.2),
}


def figure(value: float | None, half_percent: float | None = 2.0) -> SharedFigure:
    """A figure with an interval of so many percent around it."""
    if value is None or half_percent is None:
        return SharedFigure(value=value)
    half = value * half_percent / 100.0
    return SharedFigure(value=value, ci95=(value - half, value + half))


def mean_ms(technique: str, tenants: int) -> float:
    _, alone, more = TECHNIQUES.get(technique, ("", 100.0, 50.0))
    return alone + more * (tenants - 1)


def shared_row(technique: str, tenants: int = 7, **changes: Any) -> SharedRow:
    mean = mean_ms(technique, tenants)
    values: dict[str, Any] = {
        "technique": technique, "tenants": tenants, "repeats": REPEATS,
        "entitlement": TECHNIQUES.get(technique, ("up to all of it",))[0], "entitlement_share": None,
        "mean_ms": figure(mean), "p50_ms": figure(0.98 * mean), "p90_ms": figure(1.1 * mean),
        "p99_ms": figure(1.3 * mean, 6.0), "worst_tenant_mean_ms": figure(1.04 * mean),
        "aggregate_per_s": figure(tenants * 1000.0 / mean), "jain": figure(1.0 - 0.004 * (tenants - 1), 0.2),
        "slowdown": figure(mean / mean_ms(technique, 1)),
    }  # fmt: skip
    return SharedRow(**{**values, **changes})


def tenant(number: int, technique: str, tenants: int, cell: str, **changes: Any) -> TenantResult:
    mean = mean_ms(technique, tenants) * (1.0 + 0.01 * (number - 1))
    values: dict[str, Any] = {
        "tenant": number, "entitlement": TECHNIQUES.get(technique, ("up to all of it",))[0], "entitlement_share": None,
        "threads": 1, "inferences": int(10_000 / mean) + 1, "throughput_per_s": 1000.0 / mean, "mean_ms": mean,
        "p50_ms": 0.98 * mean, "p90_ms": None, "p99_ms": None, "samples_file": f"samples/{cell}-{number}.parquet",
        "evidence": {"device_id": "made-up-0", "memory_limit_mb": 1024},
    }  # fmt: skip
    return TenantResult(**{**values, **changes})


def shared_cell(technique: str, tenants: int = 7, repeat: int = 1, **changes: Any) -> SharedCell:
    name = f"{technique}-t{tenants}-r{repeat}"
    mean = mean_ms(technique, tenants)
    values: dict[str, Any] = {
        "cell": name, "technique": technique, "tenants": tenants, "repeat": repeat, "started_at": STAMP,
        "window_s": 10.0, "overlap_share": 0.97 - 0.001 * tenants, "aggregate_per_s": tenants * 1000.0 / mean,
        "jain": 1.0 - 0.004 * (tenants - 1), "switched_s": 3.5 if repeat == 1 else None, "valid": True,
        "results": tuple(tenant(i + 1, technique, tenants, name) for i in range(tenants)),
        "evidence": {"active": True, "layer": technique, "limits": {"quota_percent": 28.6}},
    }  # fmt: skip
    return SharedCell(**{**values, **changes})


def cross_check(ours_ms: float = 320.0, percent: float = 0.6) -> CrossCheck:
    query = "avg(sum(rate(inference_time_seconds_sum[2m])) / sum(rate(inference_time_seconds_count[2m])))"
    return CrossCheck(
        query=query, prometheus_ms=ours_ms * (1 + percent / 100), ours_ms=ours_ms, difference_percent=percent
    )


def invalid_cell(technique: str, tenants: int = 7, repeat: int = 1, reason: str = "no MPS client was seen") -> Any:
    """A cell whose figures look fine and whose evidence is missing."""
    return shared_cell(technique, tenants, repeat, valid=False, evidence={"active": False, "reasons": [reason]})


def neighbour(technique: str = "proxy", aggressor: str = "memory", percent: float | None = 38.0, **changes: Any) -> Any:
    values: dict[str, Any] = {
        "technique": technique, "victim": "micro single-stream", "aggressor": aggressor, "pairs": 40, "alone_ms": 0.5,
        "beside_ms": 0.5 * (1 + (percent or 0) / 100),
        "slowdown_percent": SharedFigure(value=percent, ci95=None if percent is None else (percent - 3, percent + 3)),
    }  # fmt: skip
    return NeighbourRow(**{**values, **changes})


def neighbours(*techniques: str) -> tuple[NeighbourRow, ...]:
    """Each kind of neighbour under each technique: from nothing to eight times, and one that does not count."""
    sizes = {"compute": 1.2, "memory": 38.0, "copies": 160.0, "launches": 720.0}
    rows = [neighbour(name, kind, size * (i + 1)) for i, name in enumerate(techniques) for kind, size in sizes.items()]
    died = WarningRecord(code="died", text="the neighbour did not start again")
    return (*rows, *(neighbour(name, "crash", 12.0, valid=False, warnings=(died,)) for name in techniques[:1]))


def obtained(situation: str = "equals", tenant: int = 1, asked: float | None = 0.3, **changes: Any) -> ObtainedRow:
    """A tenant that got what it asked for."""
    values: dict[str, Any] = {
        "technique": "cpu-quota", "resource": "compute", "tenant": tenant, "situation": situation, "asked": asked,
        "exactly": True, "obtained": figure(0.3 if asked is None else asked), "repeats": REPEATS,
        "verdict": None if asked is None else "pass", "reason": "at most 2.1 % less than asked for; tolerance 5 %",
    }  # fmt: skip
    return ObtainedRow(**{**values, **changes})


def obtained_record(*rows: ObtainedRow, **changes: Any) -> SharingRecord:
    """An experiment whose tenants asked for shares."""
    values: dict[str, Any] = {"cells": (), "rows": (), "obtained": rows, **changes}
    record = sharing_record(("cpu-quota",), **values)
    return record.model_copy(update={"plan": {**record.plan, "tolerance_percent": 5.0}})


def isolation(*techniques: str) -> tuple[IsolationRow, ...]:
    checks: tuple[Any, ...] = ("memory quota holds", "no foreign memory readable", "a crash stays with its tenant")
    said: tuple[tuple[bool | None, str], ...] = (
        (True, "refused at 256 MB of 256 MB"),
        (False, "read 4 of 4,096 bytes of another tenant"),
        (None, "this device cannot crash a tenant"),
    )
    return tuple(
        IsolationRow(technique=name, check=check, passed=passed, text=text)
        for name in techniques
        for check, (passed, text) in zip(checks, said, strict=True)
    )


def sharing_record(
    techniques: Sequence[str] = ("cpu-shared", "cpu-quota"), tenants: Sequence[int] = TENANTS, **changes: Any
) -> SharingRecord:
    cells = tuple(
        shared_cell(technique, count, repeat)
        for repeat in range(1, REPEATS + 1)
        for technique in techniques
        for count in tenants
    )
    values: dict[str, Any] = {
        "gputax_version": "0", "timestamp": STAMP, "complete": True, "plan_id": "p",
        "command": "gputax share --env bare --tenants 1,3,5,7", "cells_planned": tuple(cell.cell for cell in cells),
        "plan": {"techniques": list(techniques), "tenants": list(tenants), "repeats": REPEATS, "seed": 7},
        "place": "bare", "workload": "yolos-small", "device": "cpu", "device_label": CPU,
        "claim": "CPU number, not a GPU's", "fingerprint": {"threads": 1}, "cells": cells,
        "rows": tuple(shared_row(technique, count) for technique in techniques for count in tenants),
    }  # fmt: skip
    return SharingRecord(**{**values, **changes})


def neighbours_record(*techniques: str, **changes: Any) -> SharingRecord:
    """An experiment of neighbours alone, without rows by tenants."""
    techniques = techniques or ("proxy",)
    values: dict[str, Any] = {
        "workload": "micro:operation", "device": "software",
        "device_label": "software device (made up), not a GPU", "neighbours": neighbours(*techniques),
        "isolation": isolation(*techniques), "command": "gputax share --victim single-stream --aggressor memory",
    }  # fmt: skip
    return sharing_record((), (), **{**values, **changes})


def gpu_record(**changes: Any) -> SharingRecord:
    """Three techniques of a made-up GPU, one of them invalid at 7 tenants, with Prometheus beside."""
    names = ("time-slicing", "mps", "mig")
    made = sharing_record(names)
    cells = tuple(
        invalid_cell("mps", 7, cell.repeat)
        if (cell.technique, cell.tenants) == ("mps", 7)
        else cell.model_copy(update={"cross_check": cross_check(mean_ms(cell.technique, cell.tenants))})
        for cell in made.cells
    )
    rows = tuple(row for row in made.rows if (row.technique, row.tenants) != ("mps", 7))
    values = {
        "cells": cells,
        "rows": rows,
        "place": "k8s",
        "device": "cuda",
        "device_label": GPU,
        "claim": "",
        **changes,
    }
    return made.model_copy(update=values)


def shared(*records: SharingRecord) -> Sources:
    return Sources(
        sharing=tuple(SharingSource(f"results/share-{i}/sharing.json", each) for i, each in enumerate(records))
    )
