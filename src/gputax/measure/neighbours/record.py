"""The document of a neighbour experiment as it grows: pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from gputax import __version__
from gputax.environments.described import Described
from gputax.measure.fingerprint import claim_of, device_name_of, engine_of, host_of
from gputax.measure.neighbours.cell import CellResult
from gputax.measure.neighbours.slots import ORDER
from gputax.plan.cells import Cell, LoadPlan
from gputax.plan.claims import device_label
from gputax.plan.engines import DEFAULT_ENGINE
from gputax.plan.neighbours import AGGRESSORS, family_of
from gputax.plan.techniques import TECHNIQUES, SharePlan
from gputax.results.documents.sharing import IsolationRow, SharingRecord

# Three workers and their probes; used to estimate the remaining time.
ISOLATION_S = 5.0


def empty_neighbours(
    plan: SharePlan, victim: str, kinds: Sequence[str], plan_id: str, cells: tuple[str, ...], timestamp: str
) -> SharingRecord:
    """Return the record of an experiment that has measured nothing yet."""
    return SharingRecord(
        gputax_version=__version__,
        timestamp=timestamp,
        complete=False,
        plan_id=plan_id,
        plan={**dataclasses.asdict(two_tenants(plan)), "victim": victim, "aggressors": list(kinds)},
        cells_planned=cells,
        place=plan.place,
        workload=plan.setup.workload,
        device_label="nothing measured yet",
    )


def two_tenants(plan: SharePlan) -> SharePlan:
    """Return the plan with two tenants, whatever was requested."""
    return dataclasses.replace(plan, tenants=(2,))


def shown_cells(plan: SharePlan, victim: str, kinds: int) -> tuple[Cell, ...]:
    """Return the parts of the experiment as a view shows them: each kind of neighbour, then the isolation checks."""
    slots_s = len(ORDER) * plan.repeats * plan.window_s
    durations_s = [slots_s] * kinds + [ISOLATION_S]
    return tuple(
        Cell(plan.setup, victim, 1, TECHNIQUES[name].environment(plan.place), 2, LoadPlan(duration_s=seconds))
        for name in plan.techniques
        for seconds in durations_s
    )


def described_by(
    record: SharingRecord, facts: dict[str, Any], described: Described, cell: str, result: CellResult
) -> SharingRecord:
    """Add the victim's description of its place and device, and what the neighbour did."""
    device = str(facts["device"])
    neighbours = {**record.fingerprint.get("neighbours", {})}
    kind = cell.rpartition("-")[2]
    neighbours[cell] = {
        "about": AGGRESSORS[kind, family_of(device)].about,
        "facts": engine_of(result.aggressor_facts),
        "evidence": result.evidences[-1].to_dict() if result.evidences else {},
        "crashes": list(result.crash.ends) if result.crash else [],
    }
    return record.model_copy(
        update={
            "device": device,
            "device_label": device_label(device, device_name_of(described, facts)),
            "claim": claim_of(record.workload, "saturate", str(facts.get("engine", DEFAULT_ENGINE)), facts),
            "fingerprint": {
                "host": host_of(described),
                "gpus": described.gpus,
                "packages": described.packages,
                "victim": engine_of(facts),
                "neighbours": neighbours,
            },
        }
    )


def replaced_isolation(rows: Sequence[IsolationRow], new: IsolationRow) -> tuple[IsolationRow, ...]:
    """Return the rows with the new one replacing an older one of the same check."""
    kept = [row for row in rows if (row.technique, row.check) != (new.technique, new.check)]
    return (*kept, new)
