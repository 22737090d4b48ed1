"""Turn the pairs of a duet into the comparison document and its files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax import __version__
from gputax.measure.duet.explanations import explanations
from gputax.measure.duet.judgement import Question, judge_duet, process_luck_percent, resolution, round_notices
from gputax.measure.duet.pairs import DuetData, DuetRounds
from gputax.measure.duet.recorded import SideFacts
from gputax.measure.duet.sides import CLOSED_LOOPS, LOADGEN_SLOT_S, DuetRequest, SideSpec, WorkerSide
from gputax.measure.fingerprint import claim_of, device_name_of
from gputax.plan.claims import device_label
from gputax.plan.environment import EnvironmentName
from gputax.plan.servers import ERROR_BOUND, TOO_MANY_FAILED
from gputax.plan.tokens import ClockStart, TokenDefinitions
from gputax.plan.workloads import OPERATIONS
from gputax.results.documents.base import WarningRecord
from gputax.results.documents.comparison import Comparison, Resolution
from gputax.results.documents.comparison import Side as SideRecord
from gputax.results.store import ResultDirectory, now_text
from gputax.text import digits
from gputax.worker.probes.disturbance import BUSY_NEIGHBOURS, Limits


def questions(request: DuetRequest, a: WorkerSide, b: WorkerSide, rounds: DuetRounds) -> dict[str, Question]:
    """Return what is asked of each workload that was measured."""
    doubt = "" if request.accept_disturbed else doubt_of(a, b)
    control = _control(rounds)
    return {workload: _question(request, workload, a, doubt, rounds, control) for workload in rounds.parts}


def _control(rounds: DuetRounds) -> Resolution | None:
    return resolution(rounds.control, rounds) if rounds.control and len(rounds.control.pairs) > 1 else None


def comparison_of(request: DuetRequest, a: WorkerSide, b: WorkerSide, rounds: DuetRounds) -> Comparison:
    """Judge every workload and put all of them into one document."""
    parts = rounds.parts
    asked = questions(request, a, b, rounds)
    judged = {workload: judge_duet(asked[workload], data) for workload, data in parts.items()}
    found = _control(rounds)
    doubt = doubt_of(a, b)
    warnings = [WarningRecord.of(each) for each in (*request.notices, *round_notices(rounds))]
    warnings += [
        WarningRecord(code=each.code, text=_of_part(workload, each.text, rounds), value=each.value)
        for workload, part in judged.items()
        for each in part.notices
    ]
    warnings += [
        WarningRecord(code="technique", text=f"{side.spec.label}: {side.evidence().warning}")
        for side in (a, b)
        if side.evidence().warning
    ]
    warnings += busy_hosts(a, b)
    warnings += failed_requests(a, b)
    left = [workload for workload in request.parts if workload not in parts]
    if left:
        warnings.append(WarningRecord(code="not-measured", text=f"interrupted before {', '.join(left)} was measured"))
    if found and not found.contains_zero:
        warnings.append(
            WarningRecord(
                code="control-failed",
                text="the A/A control found a difference between two equal sides: do not trust small overheads here",
            )
        )
    recorded = {workload: (a.recorded(workload), b.recorded(workload)) for workload in parts}
    metrics = tuple(row for part in judged.values() for row in part.metrics)
    return Comparison(
        kind="duet",
        gputax_version=__version__,
        timestamp=now_text(),
        question=f"What does {request.b.label} cost over {request.a.label}?",
        command=request.command,
        sides=(
            _side(request.a, a, {workload: side for workload, (side, _) in recorded.items()}),
            _side(request.b, b, {workload: side for workload, (_, side) in recorded.items()}),
        ),
        metrics=metrics,
        resolution=found,
        pair_series=tuple(part.series for part in judged.values()),
        settings={**_settings(request, rounds), **_tokens_said(_token_definitions(request, a, rounds))},
        disturbed=(doubt,) if doubt else (),
        explanations=explanations((request.a.label, request.b.label), recorded, metrics, found),
        warnings=tuple(warnings),
    )


def busy_hosts(a: WorkerSide, b: WorkerSide) -> list[WarningRecord]:
    """Warn if other processes used the CPUs: pairs cancel equal effects, but not different scheduling weights."""
    limit = Limits().others_percent_of_core
    why = "they widen the interval"
    if _scheduled_apart(a, b):
        why += (
            ", and if the sides differ in scheduling weight they shift it: next to two busy processes a pod was once "
            "29 % faster than bare. Measure on an idle machine"
        )
    return [
        WarningRecord(
            code=BUSY_NEIGHBOURS,
            text=f"{side.spec.label}: other processes used {side.others_percent_of_core:.0f} % of one core on its CPUs "
            f"before the pairs (limit {limit:g} %): {why}",
            value=side.others_percent_of_core,
        )
        for side in (a, b)
        if side.others_percent_of_core > limit
    ]


def failed_requests(a: WorkerSide, b: WorkerSide) -> list[WarningRecord]:
    """Say how many requests of each side failed; they are in no pair."""
    return [
        WarningRecord(
            code="requests-failed" if side.error_rate <= ERROR_BOUND else TOO_MANY_FAILED,
            text=f"{side.spec.label}: {side.failed} of {side.answered + side.failed} requests failed",
            value=100.0 * side.error_rate,
        )
        for side in (a, b)
        if side.failed
    ]


def doubt_of(a: WorkerSide, b: WorkerSide) -> str:
    """Return why no verdict is allowed, or "": an artefact of -29 % must not become a pass."""
    for side in (a, b):
        if side.error_rate > ERROR_BOUND:
            return (
                f"{side.spec.label}: {digits(100.0 * side.error_rate, 2)} % of the requests failed, more than "
                f"{100.0 * ERROR_BOUND:g} %"
            )
        if side.disturbed:  # both sides are usually on one machine: the first is enough
            return f"{side.spec.label}: {'; '.join(side.disturbed)}"
    busiest = max(side.others_percent_of_core for side in (a, b))
    if busiest <= Limits().others_percent_of_core or not _scheduled_apart(a, b):
        return ""
    return (
        f"other processes used {busiest:.0f} % of one core, and sides with different weights lose unequal time: "
        "measure on an idle machine"
    )


def _scheduled_apart(a: WorkerSide, b: WorkerSide) -> bool:
    return len({EnvironmentName.parse(side.spec.environment).place for side in (a, b)}) > 1


def write_duet(
    store: ResultDirectory[Comparison], comparison: Comparison, rounds: DuetRounds, a: WorkerSide, b: WorkerSide
) -> None:
    """Write the pairs, their samples and the document; several workloads get one directory each."""
    store.write_json("environment-a.json", a.described.to_dict())
    store.write_json("environment-b.json", b.described.to_dict())
    for workload, data in rounds.parts.items():
        prefix = f"{workload.replace(':', '_')}/" if len(rounds.parts) > 1 else ""
        _write_pairs(store, prefix, data)
        _write_tokens(store, prefix, data)
    store.write_document(comparison)


def _token_definitions(request: DuetRequest, a: WorkerSide, rounds: DuetRounds) -> dict[str, str]:
    """Return what the token metrics of this duet mean; empty without tokens."""
    if not any(len(data.series) > 1 for data in rounds.parts.values()):
        return {}
    start: ClockStart = "scheduled" if request.scenario == "server" else "sent"
    counted = a.facts.get("tokens_counted", {})
    return TokenDefinitions(start, counted.get("unit", "token"), counted.get("by", "engine")).to_dict()


def _question(
    request: DuetRequest, workload: str, a: WorkerSide, doubt: str, rounds: DuetRounds, control: Resolution | None
) -> Question:
    scenario = "saturate" if request.scenario in CLOSED_LOOPS else request.scenario
    text = claim_of(workload, scenario, request.a.setup.engine, a.facts)
    operation = OPERATIONS.get(workload)
    return Question(
        workload,
        request.scenario,
        request.batch,
        request.a.label,
        request.b.label,
        request.budgets,
        text,
        request.named,
        bandwidth=(operation.bandwidth_metric or "") if operation else "",
        bytes_per_run=operation.bytes_per_run * request.batch if operation else 0,
        doubt=doubt,
        risks=rounds.looks.risks,
        control=control,
        seconds=rounds.seconds,
    )


def _tokens_said(definitions: dict[str, str]) -> dict[str, Any]:
    return {"token_definitions": definitions} if definitions else {}


def _of_part(workload: str, text: str, rounds: DuetRounds) -> str:
    return f"{workload}: {text}" if len(rounds.parts) > 1 else text


def _settings(request: DuetRequest, rounds: DuetRounds) -> dict[str, Any]:
    common = {
        "drop_rule": "the first run of each slot, or a millisecond's worth of shorter runs; of runs over 30 ms none",
        "closed_loop": request.scenario in CLOSED_LOOPS,
        "loadgen_slot_s": None if request.scenario in CLOSED_LOOPS else LOADGEN_SLOT_S,
        "order": "random within each pair",
        "seed": request.seed,
        "stop_width_percent": request.width_percent,
        "max_time_s": request.max_time_s,
        "looks_at_restarts": rounds.looks.at_restarts,
        "verdict_risk": rounds.looks.risks.verdict,
        "restarts": rounds.rounds - 1,
        "stopped_because": rounds.stopped_because,
        "seconds": rounds.seconds,
        "lost_pairs": rounds.lost_pairs,
    }
    if len(rounds.parts) == 1:
        return {**common, **_part_settings(next(iter(rounds.parts.values())))}
    return {**common, "workloads": {workload: _part_settings(data) for workload, data in rounds.parts.items()}}


def _part_settings(data: DuetData) -> dict[str, Any]:
    return {
        "slot_runs": data.slot.runs,
        "slot_dropped": data.slot.dropped,
        "process_luck_percent": process_luck_percent(data),
    }


def _side(spec: SideSpec, side: WorkerSide, recorded: Mapping[str, SideFacts]) -> SideRecord:
    device = str(side.facts["device"])
    return SideRecord(
        label=spec.label,
        environment=spec.environment,
        device=device,
        device_label=device_label(device, device_name_of(side.described, side.facts)),
        source="measured now",
        format="duet",
        fingerprint={**side.facts, "cpu_allowance": side.described.cpu_allowance},
        evidence=side.evidence().to_dict(),
        recorded={workload: facts.to_dict() for workload, facts in recorded.items()},
    )


def _write_pairs(store: ResultDirectory[Comparison], prefix: str, data: DuetData) -> None:
    store.write_samples(
        f"{prefix}pairs.parquet",
        {
            "time_ns": np.array([int(pair.time_s * 1e9) for pair in data.pairs], dtype=np.int64),
            "b_first": np.array([pair.b_first for pair in data.pairs], dtype=np.int64),
            "restart": np.array([pair.restart for pair in data.pairs], dtype=np.int64),
            "a_mean_ns": np.array([round(pair.a_mean_ns) for pair in data.pairs], dtype=np.int64),
            "b_mean_ns": np.array([round(pair.b_mean_ns) for pair in data.pairs], dtype=np.int64),
            # How long the worker's threads waited for a CPU; -1 where the kernel does not count it.
            "a_run_wait_ns": np.array([_known(pair.a_wait_ns) for pair in data.pairs], dtype=np.int64),
            "b_run_wait_ns": np.array([_known(pair.b_wait_ns) for pair in data.pairs], dtype=np.int64),
            **_counters("a", [pair.a_counters for pair in data.pairs]),
            **_counters("b", [pair.b_counters for pair in data.pairs]),
        },
    )
    for name, blocks in (("a", [pair.a_ns for pair in data.pairs]), ("b", [pair.b_ns for pair in data.pairs])):
        store.write_samples(
            f"{prefix}samples-{name}.parquet",
            {
                "pair": np.repeat(np.arange(len(blocks)), [block.size for block in blocks]),
                "latency_ns": np.rint(np.concatenate(blocks)).astype(np.int64),
            },
        )


def _write_tokens(store: ResultDirectory[Comparison], prefix: str, data: DuetData) -> None:
    """Write the values of each token metric, so that its overhead can be computed again too."""
    for series in data.series[1:]:
        for name, sides in (
            ("a", [pair.a_series for pair in data.pairs]),
            ("b", [pair.b_series for pair in data.pairs]),
        ):
            values = [side[series] for side in sides]
            store.write_samples(
                f"{prefix}{series}-{name}.parquet",
                {
                    "pair": np.repeat(np.arange(len(values)), [each.size for each in values]),
                    f"{series}_ns": np.rint(np.concatenate(values)).astype(np.int64),
                },
            )


def _counters(side: str, halves: list[Mapping[str, int]]) -> dict[str, npt.NDArray[np.int64]]:
    """Return a column for each counter of a program; -1 where one half does not know it."""
    names = dict.fromkeys(name for half in halves for name in half)
    return {f"{side}_{name}": np.array([half.get(name, -1) for half in halves], dtype=np.int64) for name in names}


def _known(wait_ns: float | None) -> int:
    return -1 if wait_ns is None else round(wait_ns)
