"""Turn measured cells of sharing into the documents on disk; pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from gputax import __version__
from gputax.measure.fingerprint import claim_of, device_name_of, engine_of, host_of, notices_of
from gputax.measure.share.cell import SharedMeasurement, expected_seconds
from gputax.measure.view import CellFigures
from gputax.plan.cells import Cell, LoadPlan
from gputax.plan.claims import device_label
from gputax.plan.techniques import TECHNIQUES, ShareCell, SharePlan
from gputax.results.documents.base import with_notices
from gputax.results.documents.sharing import SharedCell, SharedFigure, SharedRow, SharingRecord, TenantResult
from gputax.stats.shared import Replicated, replicated, slowdown

SIZES_OF_A_SHARE = ("device_memory_mb",)
Situation = Literal["", "whole", "alone", "equals", "greedy"]
# Facts that a technique does not change; MPS sets the compute mode, and MIG changes memory and id.
STEADY_GPU_FACTS = ("name", "driver_version", "cuda_driver_version", "pci_bus_id")


def empty_sharing(plan: SharePlan, timestamp: str, command: str) -> SharingRecord:
    """Return the record of an experiment that has measured nothing yet."""
    return SharingRecord(
        gputax_version=__version__,
        timestamp=timestamp,
        complete=False,
        plan_id=plan.id,
        command=command,
        plan=json.loads(json.dumps(dataclasses.asdict(plan))),  # as it will be read: lists, no tuples
        cells_planned=tuple(cell.id for cell in plan.cells()),
        place=plan.place,
        workload=plan.setup.workload,
        device_label="nothing measured yet",
    )


def described_sharing(record: SharingRecord, measured: SharedMeasurement) -> SharingRecord:
    """Add the first tenant's description of its place, device and engine."""
    described, facts = measured.proof.described[0], dict(measured.facts[0])
    device = str(facts["device"])
    # In a pod the host's name is the pod's, and every technique has pods of its own: the machine is the node.
    machine = measured.proof.evidences[0].fact("node") or described.hostname
    gpus = described.gpus
    return record.model_copy(
        update={
            "device": device,
            "device_label": device_label(device, device_name_of(described, facts)),
            "claim": sharing_claim(record, facts, measured.tenants[0].setup.engine),
            "fingerprint": {
                "host": {"hostname": machine, **host_of(described)},
                "gpus": [{key: gpu.get(key) for key in STEADY_GPU_FACTS} for gpu in gpus],
                "packages": described.packages,
                "setups": {
                    **record.fingerprint.get("setups", {}),
                    measured.cell.technique: _setup(measured.cell, facts),
                },
            },
            "warnings": with_notices(record.warnings, notices_of(facts)),
        }
    )


def _setup(cell: ShareCell, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the engine's facts; where shares were asked for, its device is as large as its share."""
    found = engine_of(dict(facts))
    return {key: value for key, value in found.items() if not cell.situation or key not in SIZES_OF_A_SHARE}


def sharing_claim(record: SharingRecord, facts: Mapping[str, Any], engine: str) -> str:
    """Return the sentence that says what the numbers are and what they are not."""
    text = claim_of(record.workload, "saturate", engine, facts)
    stand_ins = [name for name in record.plan["techniques"] if TECHNIQUES[name].stand_in]
    if stand_ins:
        words = "is a stand-in, not a technique" if len(stand_ins) == 1 else "are stand-ins, not techniques"
        text += f"; {' and '.join(stand_ins)} {words} of a GPU"
    return text


def shared_cell_document(measured: SharedMeasurement, started_at: str, session: int) -> SharedCell:
    """Return the record of one cell."""
    cell, together = measured.cell, measured.together
    return SharedCell(
        cell=cell.id,
        technique=cell.technique,
        tenants=cell.tenants,
        repeat=cell.repeat,
        situation=cast(Situation, cell.situation),
        number=cell.number,
        session=session,
        started_at=started_at,
        window_s=measured.window.seconds,
        overlap_share=measured.window.overlap_share,
        aggregate_per_s=together.throughput_per_s,
        mean_ms=together.mean_ms,
        p50_ms=together.p50_ms,
        p90_ms=together.p90_ms,
        p99_ms=together.p99_ms,
        tokens=dict(together.tokens),
        jain=measured.jain,
        joules_per_inference=joules_per_inference(measured),
        results=tuple(
            TenantResult(
                tenant=number,
                entitlement=tenant.entitlement.text,
                entitlement_share=tenant.entitlement.share,
                threads=facts.get("threads"),
                inferences=one.runs,
                throughput_per_s=one.throughput_per_s,
                mean_ms=one.mean_ms,
                p50_ms=one.p50_ms,
                p90_ms=one.p90_ms,
                p99_ms=one.p99_ms,
                tokens=dict(one.tokens),
                samples_file=samples_name(cell),
                evidence=evidence.to_dict(),
                asked_compute=tenant.asked.compute if tenant.asked else None,
                asked_memory=tenant.asked.memory if tenant.asked else None,
                asked_exactly=tenant.asked.exact if tenant.asked else None,
                memory_bytes=measured.memory_bytes[number - 1] if measured.memory_bytes else None,
            )
            for number, (tenant, facts, one, evidence) in enumerate(
                zip(measured.tenants, measured.facts, measured.each, measured.proof.evidences, strict=True), start=1
            )
        ),
        evidence={**measured.evidence.to_dict(), "switched": dict(measured.switched.facts)},
        switched_s=measured.switched.seconds,
        valid=measured.valid,
        disturbed=measured.disturbed,
        warnings=with_notices((), measured.notices),
    )


def joules_per_inference(measured: SharedMeasurement) -> float | None:
    """Return the device's energy over what all tenants did with it: which tenant used how much nobody counts."""
    if measured.energy_j is None:
        return None
    # By the rate and not by the runs inside: the ends of the window cut some.
    return measured.energy_j / (measured.together.throughput_per_s * measured.window.seconds)


def samples_name(cell: ShareCell) -> str:
    """Return the path of a cell's samples in its result directory."""
    return f"samples/{cell.id}.parquet"


def shared_rows(cells: Sequence[SharedCell]) -> tuple[SharedRow, ...]:
    """Return one row for each technique and number of tenants, over the valid repeats, in order of first appearance."""
    groups: dict[tuple[str, int], list[SharedCell]] = {}
    for cell in sorted((each for each in cells if each.valid), key=lambda each: each.repeat):
        groups.setdefault((cell.technique, cell.tenants), []).append(cell)
    order = list(dict.fromkeys(technique for technique in TECHNIQUES if any(key[0] == technique for key in groups)))
    keys = sorted(groups, key=lambda key: (order.index(key[0]), key[1]))
    return tuple(_row(groups[key], groups.get((key[0], 1), [])) for key in keys)


def _row(repeats: Sequence[SharedCell], alone: Sequence[SharedCell]) -> SharedRow:
    first = repeats[0]
    results = [result for cell in repeats for result in cell.results]
    shares = {result.entitlement_share for result in results}
    slower = Replicated(1.0) if first.tenants == 1 else slowdown(_means(alone), _means(repeats))
    return SharedRow(
        technique=first.technique,
        tenants=first.tenants,
        repeats=len(repeats),
        disturbed=sum(bool(cell.disturbed) for cell in repeats),
        entitlement=" / ".join(dict.fromkeys(result.entitlement for result in results)),
        entitlement_share=shares.pop() if len(shares) == 1 else None,
        mean_ms=_figure(replicated([cell.mean_ms for cell in repeats])),
        p50_ms=_figure(replicated([cell.p50_ms for cell in repeats])),
        p90_ms=_figure(replicated([cell.p90_ms for cell in repeats])),
        p99_ms=_figure(replicated([cell.p99_ms for cell in repeats])),
        worst_tenant_mean_ms=_figure(replicated([max(each.mean_ms for each in cell.results) for cell in repeats])),
        aggregate_per_s=_figure(replicated([cell.aggregate_per_s for cell in repeats])),
        jain=_figure(replicated([cell.jain for cell in repeats], least=1.0 / first.tenants, most=1.0, luck=0.0)),
        joules_per_inference=_energy(repeats),
        slowdown=_figure(slower),
    )


def _energy(repeats: Sequence[SharedCell]) -> SharedFigure | None:
    known = [cell.joules_per_inference for cell in repeats]
    return None if None in known else _figure(replicated(known))


def _means(cells: Sequence[SharedCell]) -> dict[int, float]:
    return {cell.repeat: cell.mean_ms for cell in cells if cell.mean_ms is not None}


def _figure(found: Replicated) -> SharedFigure:
    return SharedFigure(value=found.value, ci95=found.ci95)


def shown_cell(plan: SharePlan, cell: ShareCell, cores: float) -> Cell:
    """Return the cell as a view shows it while it runs, with the time that it probably takes on so many cores."""
    return Cell(
        plan.setup,
        "saturate",
        plan.batch_size,
        TECHNIQUES[cell.technique].environment(plan.place),
        cell.tenants,
        LoadPlan(duration_s=expected_seconds(plan, cell, cores)),
    )


def shown_figures(measured: SharedMeasurement, device: str) -> CellFigures:
    """Return the cell's figures as a view shows them: of all tenants together."""
    together = measured.together
    return CellFigures(
        cell=measured.cell.id,
        device=device,
        throughput_per_s=together.throughput_per_s,
        p90_ms=together.p90_ms,
        p99_ms=together.p99_ms,
        valid=measured.valid,
        disturbed=bool(measured.disturbed),
    )
