"""The comparison of results already on disk, as one document: unpaired, and labelled so."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gputax import __version__
from gputax.compare.matching import CellPair, match_cells
from gputax.compare.rows import CellRows, Row, cell_rows
from gputax.compare.verdicts import judged_rows
from gputax.errors import ResultsError
from gputax.plan.budgets import Budgets, unused_budgets
from gputax.plan.comparability import differences
from gputax.plan.notices import Notice
from gputax.results.documents.base import WarningRecord
from gputax.results.documents.comparison import Comparison, Side
from gputax.results.importers.source import Source, printable
from gputax.results.store import now_text
from gputax.stats.unpaired import UNPAIRED_NOTICE
from gputax.stats.verdicts import ALPHA


def compare_sources(
    base: Source, others: Sequence[Source], budgets: Budgets, *, force: bool = False, command: str = ""
) -> Comparison:
    """Hold every other source against the base, and each difference against its budget."""
    base, *others = with_own_labels((base, *others))
    notices = [Notice("unpaired", f"{UNPAIRED_NOTICE}; `gputax duet` is sharper")]
    compared: list[CellRows] = []
    for other in others:
        pairs, unmatched = match_cells(base, other)
        found = [cell_rows(base, other, pair, budgets) for pair in pairs]
        if not any(cell.rows for cell in found):
            raise ResultsError(
                f"{base.label} and {other.label} have no metric in common" + _why(pairs, found),
                where=f"{base.path}, {other.path}",
                next_step="name results that measured the same thing",
            )
        compared += found
        notices += unmatched
    for source in (base, *others):
        notices += [Notice(notice.code, f"{source.label}: {notice.text}", notice.value) for notice in source.notices]
    notices += [notice for cell in compared for notice in cell.notices]
    rows = [row for cell in compared for row in cell.rows]
    notices += unused_budgets(budgets.metrics, (row.metric.name for row in rows))
    return Comparison(
        kind="compare",
        gputax_version=__version__,
        timestamp=now_text(),
        question=_question(base, others),
        command=printable(command, 4096),
        sides=tuple(_side(source) for source in (base, *others)),
        metrics=judged_rows(rows, force),
        settings=_settings(rows, compared, force),
        warnings=tuple(dict.fromkeys(map(WarningRecord.of, notices))),
    )


def with_own_labels(sources: Sequence[Source]) -> list[Source]:
    """Give each source a label of its own: the environment, and where several share it, the name of its path."""
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
    """Return how many parts at the end of the paths tell different ones apart: a/x.txt and b/x.txt need two."""
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
    )


def _settings(rows: Sequence[Row], compared: Sequence[CellRows], force: bool) -> dict[str, Any]:
    return {
        "paired": False,
        "alpha": ALPHA,
        "judged_together": sum(row.estimate is not None and not row.blocking for row in rows),
        "several_cells": "Holm",
        "means_and_throughput": "Fieller, batch means with lag-1 correction",
        "percentiles": "percentiles of blocks, or binomial ranks at the effective number of samples; MOVER",
        "forced": force,
        "not_judged": [each for cell in compared for each in cell.not_judged],
    }


def _why(pairs: Sequence[CellPair], found: Sequence[CellRows]) -> str:
    unequal = [each.text for pair in pairs for each in differences(pair.base.conditions, pair.other.conditions)]
    reasons = [*unequal, *(notice.text for cell in found for notice in cell.notices)]
    return f" ({reasons[0]})" if reasons else ""
