"""The comparison of results on disk as one document; it is unpaired and labelled so."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gputax import __version__
from gputax.compare.matching import CellPair, Misfit, match_cells
from gputax.compare.rows import CellRows, Row, cell_rows, with_spread_of
from gputax.errors import ResultsError
from gputax.plan.budgets import Budgets, unused_scopes
from gputax.plan.comparability import Value, differences
from gputax.plan.metrics import Metric
from gputax.plan.notices import Notice
from gputax.results.documents.base import WarningRecord
from gputax.results.documents.comparison import ByValue, ComparedMetric, Comparison, Side
from gputax.results.importers.source import UNKNOWN, Source, SourceCell
from gputax.results.store import now_text
from gputax.stats.estimates import Estimate
from gputax.stats.repeats import FEWEST_REPEATS
from gputax.stats.verdicts import ALPHA, Judgement, judge_all, not_comparable
from gputax.text import joined, printable

UNPAIRED_NOTICE = "unpaired: measured one after the other; `gputax duet` alternates and is sharper"
BANDWIDTHS = frozenset(("host_to_device", "device_to_host"))


def compare_sources(
    base: Source,
    others: Sequence[Source],
    budgets: Budgets,
    *,
    force: bool = False,
    accept_disturbed: bool = False,
    command: str = "",
    misfits: Sequence[Misfit] = (),
    history: Source | None = None,
) -> Comparison:
    """Compare every other source with the base, and each difference with its budget.

    A source that has nothing in common with the base joins the misfits: the others are compared, if there are any.
    Rows without repeats of their own take the spread of the repeats in `history`, and say so.
    """
    base, *others = with_own_labels((base, *others))
    misfits = list(misfits)
    notices = [Notice("unpaired", UNPAIRED_NOTICE)]
    compared: list[CellRows] = []
    fitting: list[Source] = []
    for other in others:
        try:
            found, unmatched = _compared(base, other, budgets)
        except ResultsError as error:
            misfits.append(Misfit(other.path, error))
            continue
        fitting.append(other)
        compared += found
        notices += unmatched
    if not fitting:
        raise misfits[0].error
    others = fitting
    notices += [misfit.notice for misfit in misfits]
    notices += _labelled((base, *others))
    notices += [notice for cell in compared for notice in cell.notices]
    rows = [row for cell in compared for row in cell.rows]
    if history is not None:
        rows = _with_history(rows, history)
    notices += unused_scopes(budgets, [(base.environment, other.environment) for other in others])
    return Comparison(
        kind="compare",
        gputax_version=__version__,
        timestamp=now_text(),
        question=_question(base, others),
        command=printable(command, 4096),
        sides=tuple(_side(source) for source in (base, *others)),
        metrics=judged_rows(rows, force, accept_disturbed),
        settings=_settings(rows, compared, force),
        warnings=tuple(dict.fromkeys(map(WarningRecord.of, notices))),
    )


def _with_history(rows: Sequence[Row], history: Source) -> list[Row]:
    found = [with_spread_of(row, history) for row in rows]
    wanting = [row for row in rows if row.open_reason and row.compared.base_value is not None]
    if found == list(rows) and wanting:
        raise ResultsError(
            f"no cell of this run has {FEWEST_REPEATS} repeats of the same workload on the same machine",
            where=history.path,
            next_step="gputax run --like BASE --repeats 5 --out HISTORY",
        )
    return found


def _labelled(sources: Sequence[Source]) -> list[Notice]:
    """Return the notices of all sources, each once, with the labels of those that share it."""
    labels: dict[Notice, list[str]] = {}
    for source in sources:
        for notice in source.notices:
            labels.setdefault(notice, []).append(source.label)
    return [dataclasses.replace(each, text=f"{joined(names)}: {each.text}") for each, names in labels.items()]


def _compared(base: Source, other: Source, budgets: Budgets) -> tuple[list[CellRows], tuple[Notice, ...]]:
    pairs, unmatched = match_cells(base, other)
    found = [cell_rows(base, other, pair, budgets) for pair in pairs]
    judged = {row.metric.name for cell in found for row in cell.rows}
    demanded = budgets.demanded(base.environment, other.environment)
    common = [frozenset(pair.base.metrics) & frozenset(pair.other.metrics) for pair in pairs]
    # What the command line names is judged where both sides have it; if no cell does, each says why.
    nowhere = demanded - judged - frozenset().union(*common) if judged else frozenset()
    for number, pair in enumerate(pairs):
        wanted = nowhere | (demanded & common[number])
        # The bandwidth of a copy is not judged beside its times; a text has only the bandwidth.
        wanted |= frozenset() if found[number].rows else BANDWIDTHS & common[number]
        if wanted:
            found[number] = cell_rows(base, other, pair, budgets, wanted)
    if any(cell.rows for cell in found):
        return found, unmatched
    raise ResultsError(
        f"{base.label} and {other.label} have no metric in common" + _why(pairs, found),
        where=f"{base.path}, {other.path}",
        next_step="compare results of the same workload",
    )


def with_own_labels(sources: Sequence[Source]) -> list[Source]:
    """Give each source a label of its own: the environment, plus the name of its path if several share it."""
    shared = Counter(source.label for source in sources)
    alike = [source for source in sources if shared[source.label] > 1]
    parts = _telling_parts([Path(source.path) for source in alike])
    labelled = [
        dataclasses.replace(source, label=_longer(source, parts)) if shared[source.label] > 1 else source
        for source in sources
    ]
    seen: Counter[str] = Counter()
    unique = []
    for source in labelled:
        seen[source.label] += 1
        again = seen[source.label]
        unique.append(dataclasses.replace(source, label=f"{source.label} #{again}") if again > 1 else source)
    return unique


def _telling_parts(paths: Sequence[Path]) -> int:
    """Return how many parts at the end of the paths make them distinct: a/x.txt and b/x.txt need two."""
    different = set(paths)
    for parts in range(1, max((len(path.parts) for path in paths), default=0) + 1):
        if len({path.parts[-parts:] for path in different}) == len(different):
            return parts
    return 1


def _longer(source: Source, parts: int) -> str:
    name = "/".join(Path(source.path).parts[-parts:])
    return source.label if name == source.label else f"{source.label} ({name})"


def _question(base: Source, others: Sequence[Source]) -> str:
    names = [other.label for other in others]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"What {'does' if len(names) == 1 else 'do'} {listed} cost over {base.label}?"


def _side(source: Source) -> Side:
    return Side(
        label=source.label,
        environment=source.environment,
        device=source.device,
        device_label=source.device_label,
        source=source.path,
        format=source.format,
        fingerprint=dict(source.fingerprint),
        evidence=dict(source.evidence),
        measured=source.measured,
        measured_by=source.measured_by,
    )


def _settings(rows: Sequence[Row], compared: Sequence[CellRows], force: bool) -> dict[str, Any]:
    return {
        "paired": False,
        "alpha": ALPHA,
        "judged_together": sum(row.claim is not None and not row.blocking for row in rows),
        "several_cells": "Holm for fail, none for pass",
        "repeats": "Welch's t over the repeats, and with a trend that both sides share: the outer bounds",
        "within_one_run": "Fieller with batch means; percentiles by blocks or binomial ranks, MOVER; not judged",
        "forced": force,
        "not_judged": [each for cell in compared for each in cell.not_judged],
    }


def _why(pairs: Sequence[CellPair], found: Sequence[CellRows]) -> str:
    unequal = [each.text for pair in pairs for each in differences(pair.base.conditions, pair.other.conditions)]
    reasons = [*unequal, *(notice.text for cell in found for notice in cell.notices)]
    return f" ({reasons[0]})" if reasons else ""


TWO_SIDED = 0.025


def judged_rows(rows: Sequence[Row], force: bool, accept_disturbed: bool = False) -> tuple[ComparedMetric, ...]:
    """Judge every row that can be decided; a single run on each side never is."""
    claims = {number: row.claim for number, row in enumerate(rows) if row.claim is not None and not row.blocking}
    decided = dict(zip(claims, judge_all(list(claims.values())), strict=True))
    verdicts = [_verdict(row, decided.get(number)) for number, row in enumerate(rows)]
    if not accept_disturbed:
        verdicts = [undisturbed(row, verdict) for row, verdict in zip(rows, verdicts, strict=True)]
    return tuple(_metric(row, verdict, force) for row, verdict in zip(rows, verdicts, strict=True))


def undisturbed(row: Row, decided: Judgement) -> Judgement:
    """Return the verdict, or none if the machine of either side was not quiet."""
    cells = {row.base_label: row.pair.base, row.other_label: row.pair.other}
    disturbed = [
        f"{label} was disturbed ({'; '.join(cell.disturbed)})" for label, cell in cells.items() if cell.disturbed
    ]
    if not disturbed or decided.verdict not in ("pass", "fail"):
        return decided
    otherwise = f"otherwise this would be a {decided.verdict}: {decided.reason}"
    return Judgement("inconclusive", f"{'; '.join(disturbed)}; {otherwise}")


def _verdict(row: Row, decided: Judgement | None) -> Judgement:
    if row.blocking:
        return not_comparable(row.blocking)
    if decided is None:
        return Judgement("inconclusive", row.open_reason)
    base_valid, other_valid = row.pair.base.valid, row.pair.other.valid
    if decided.verdict == "pass" and not (base_valid and other_valid):
        label, cell = (row.base_label, row.pair.base) if not base_valid else (row.other_label, row.pair.other)
        return Judgement("inconclusive", f"{_invalid(label, cell)}, so it cannot pass; {decided.reason}")
    if decided.verdict == "fail" and not base_valid:
        return Judgement("inconclusive", f"{_invalid(row.base_label, row.pair.base)}; {decided.reason}")
    return decided


def _by_value(row: Row, judgement: Judgement) -> ByValue | None:
    value = row.compared.overhead_absolute if row.budget.unit == "ms" else row.compared.overhead_percent
    if judgement.verdict != "inconclusive" or value is None or not math.isfinite(value):
        return None
    return "over budget by value" if value > row.budget.value else "within budget by value"


def _invalid(label: str, cell: SourceCell) -> str:
    why = "; ".join(cell.invalid_reasons)
    return f"{label} is INVALID" + (f" ({why})" if why else "")


def _metric(row: Row, judgement: Judgement, force: bool) -> ComparedMetric:
    base, other, compared = row.pair.base, row.pair.other, row.compared
    refused = any(difference.rule.refuses for difference in row.differences)
    shown = (force and not refused) or judgement.verdict != "not comparable"
    return ComparedMetric(
        workload=base.workload if base.workload != UNKNOWN else other.workload,
        scenario=base.scenario if base.scenario != UNKNOWN else other.scenario,
        batch_size=base.batch_size if base.batch_size is not None else other.batch_size,
        metric=row.metric.name,
        unit=_unit(row),
        base=row.base_label,
        other=row.other_label,
        base_value=_finite(compared.base_value) if shown else None,
        other_value=_finite(compared.other_value) if shown else None,
        overhead_percent=_finite(compared.overhead_percent) if shown else None,
        ci95_percent=_interval(compared.percent, row.metric) if shown else None,
        overhead_absolute=_finite(compared.overhead_absolute) if shown else None,
        ci95_absolute=_interval(compared.absolute, row.metric) if shown else None,
        budget=row.budget.value,
        budget_unit=row.budget.unit,
        budget_source=row.budget.source,
        verdict=judgement.verdict,
        by_value=_by_value(row, judgement),
        reason=judgement.reason,
        decides=row.decides,
        loss=row.metric.loss,
        spread=compared.spread if shown else None,
        spread_source=row.spread_source,
        repeats=compared.repeats,
        paired=False,
        differences=row.blocking,
        claim=_claim(row),
        warnings=tuple(
            WarningRecord(code=notice.code, text=notice.text, value=_finite(notice.value)) for notice in row.notices
        ),
    )


def _unit(row: Row) -> str:
    counted: set[Value | None] = {cell.conditions.get("counted") for cell in (row.pair.base, row.pair.other)}
    if row.metric.name != "throughput" or counted == {None}:
        return row.metric.unit
    # If the sides count different things, neither names the unit.
    return "/s" if None not in counted and len(counted) > 1 else f"{next(each for each in counted if each)}/s"


def _claim(row: Row) -> str:
    claims = {row.base_label: row.pair.base.claim, row.other_label: row.pair.other.claim}
    if len(set(claims.values())) == 1:
        return row.pair.base.claim
    return "; ".join(f"{label}: {claim}" for label, claim in claims.items() if claim)


def _interval(estimate: Estimate | None, metric: Metric) -> tuple[float | None, float | None] | None:
    if estimate is None:
        return None
    low, high = estimate.one_sided(TWO_SIDED)
    # Time added is always above -100 %, and throughput lost below 100 %: those bounds carry no information.
    if estimate.unit == "%" and metric.loss == "time" and low <= -100.0:
        low = -math.inf
    if estimate.unit == "%" and metric.loss == "throughput" and high >= 100.0:
        high = math.inf
    known = _finite(low), _finite(high)
    return None if known == (None, None) else known


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
