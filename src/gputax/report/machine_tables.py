"""Tables of this machine and its tools: model files, the GPU proxy's tenants, planned cells; pure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gputax.report.model import Cell, Column, Table, text_cell
from gputax.text import DASH, byte_size, counted

if TYPE_CHECKING:
    from gputax.worker.workloads.model_list import ListedModel

MODEL_COLUMNS = (
    Column("workload", "workload"),
    Column("precision", "precision", short="type"),
    Column("source", "source"),
    Column("state", "state"),
    Column("size", "size", align="right"),
    Column("sha256", "sha256", spare=2),
    Column("path", "path", spare=1),
)
TENANT_COLUMNS = (
    Column("tenant", "tenant", align="right"),
    Column("process", "process", align="right"),
    Column("user", "user", align="right", spare=3),
    Column("transport", "transport", spare=2),
    Column("memory", "memory", "MiB", "right"),
    Column("limit", "of", "MiB", "right"),
    Column("calls", "calls", align="right"),
    Column("errors", "errors", align="right"),
    Column("most", "most called", spare=1),
)
PLANNED_COLUMNS = (Column("part", "part"), Column("cell", "cell"), Column("time", "at least", "s", "right"))
MOST_CALLS = 3
MIB = 1 << 20


def models_table(listed: Sequence[ListedModel]) -> Table:
    """Return the model files that are there, and those that could be."""
    rows = tuple(
        (
            text_cell(model.name),
            text_cell(model.precision),
            text_cell(model.source),
            text_cell(model.state, tone="fail" if model.problem else ""),
            Cell(byte_size(model.bytes) if model.bytes else DASH, model.bytes),
            Cell(model.sha256[:12] or DASH, model.sha256),
            text_cell(str(model.path), detail=model.problem),
        )
        for model in listed
    )
    note = (f"Files are below {os.path.commonpath([model.path for model in listed])}",) if listed else ()
    return Table("models", "", MODEL_COLUMNS, rows, note)


def tenants_table(status: Mapping[str, Any]) -> Table:
    """Return who uses the device through the GPU proxy, and what for."""
    tenants, ended = status.get("tenants") or (), status.get("ended_tenants") or ()
    note = f"{counted(len(tenants), 'tenant')} connected, {len(ended)} ended (of the last 64)"
    return Table("tenants", "", TENANT_COLUMNS, tuple(_tenant_row(tenant) for tenant in tenants), (note,))


def _tenant_row(tenant: Mapping[str, Any]) -> tuple[Cell, ...]:
    calls = {str(name): int(count) for name, count in (tenant.get("calls") or {}).items() if count}
    most = sorted(calls.items(), key=lambda item: -item[1])[:MOST_CALLS]
    limit, errors = tenant.get("memory_limit_bytes"), int(tenant.get("errors") or 0)
    guest = f", domain {tenant['domain']}" if "domain" in tenant else ""
    return (
        *(Cell(str(tenant.get(key))) for key in ("id", "pid", "uid")),
        Cell(f"{tenant.get('transport')}{guest}"),
        Cell(f"{int(tenant.get('memory_bytes') or 0) / MIB:,.1f}"),
        Cell(f"{int(limit) / MIB:,.0f}" if limit else "all"),
        Cell(f"{sum(calls.values()):,}"),
        Cell(f"{errors:,}", tone="fail" if errors else ""),
        text_cell(", ".join(f"{name} {count:,}" for name, count in most)),
    )


def planned_table(parts: Sequence[tuple[str, str, float]]) -> Table:
    """Return what a dry run would measure: a part's name, its cell, its least seconds; without names, the cells."""
    columns = PLANNED_COLUMNS if any(part for part, _, _ in parts) else PLANNED_COLUMNS[1:]
    rows = tuple(
        (text_cell(part), text_cell(cell), Cell(f"{seconds:.0f}", seconds))[-len(columns) :]
        for part, cell, seconds in parts
    )
    return Table("planned", "", columns, rows)
