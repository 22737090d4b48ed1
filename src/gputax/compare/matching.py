"""Read the results given to `compare`, and match the cells of the base to those of the other side."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gputax.errors import ResultsError, unknown_name
from gputax.places import ENVIRONMENTS
from gputax.plan.cells import StrPath
from gputax.plan.environment import environment_in
from gputax.plan.notices import Notice
from gputax.plan.workloads import is_micro
from gputax.results.importers.detect import SERVING, format_of, read_source
from gputax.results.importers.source import UNKNOWN, Place, Source, SourceCell
from gputax.text import printable

Fits = Callable[[SourceCell, SourceCell], bool]


@dataclass(frozen=True)
class CellPair:
    """Two cells of the same workload, scenario, batch and tenants, as far as the sources know them."""

    base: SourceCell
    other: SourceCell


def match_cells(base: Source, other: Source) -> tuple[tuple[CellPair, ...], tuple[Notice, ...]]:
    """Return the pairs in the base's order, and a notice for each cell that has no partner or several.

    A field that a source does not know matches any value, but only if exactly one cell is left. A text's single unnamed
    cell is split where the other side measured the driver's operations one by one.
    """
    base, other = _split(base, other), _split(other, base)
    pairs: dict[int, int] = {}
    for fits in (_equal, compatible):
        free_base = [i for i in range(len(base.cells)) if i not in pairs]
        free_other = [j for j in range(len(other.cells)) if j not in pairs.values()]
        pairs |= _only_partners(base.cells, other.cells, free_base, free_other, fits)
    if not pairs and len(base.cells) == len(other.cells) == 1:
        # One cell each: the user means these two; comparability reports the differences.
        pairs = {0: 0}
    if not pairs:
        raise ResultsError(
            f"no cell of {other.label} matches a cell of {base.label}",
            where=f"{base.path}: {_listed(base.cells)}; {other.path}: {_listed(other.cells)}",
            next_step="measure the same workload, scenario and batch in both",
        )
    notices = [_alone(base.label, cell) for i, cell in enumerate(base.cells) if i not in pairs]
    notices += [_alone(other.label, cell) for j, cell in enumerate(other.cells) if j not in pairs.values()]
    return tuple(CellPair(base.cells[i], other.cells[pairs[i]]) for i in sorted(pairs)), tuple(notices)


# What each figure of the users' texts and of our micro_results.txt is a figure of.
_OPERATION_OF = {
    "host_to_device": "micro:copy-in-100MB",
    "device_to_host": "micro:copy-out-100MB",
}


def _split(source: Source, beside: Source) -> Source:
    """Return the source with its only, unnamed cell as one cell per operation that `beside` has; else unchanged."""
    measured = {cell.workload for cell in beside.cells if is_micro(cell.workload)}
    if len(source.cells) != 1 or _key(source.cells[0]) != (None, None, None, None) or len(measured) < 2:
        return source
    (whole,) = source.cells
    parts: dict[str, dict[str, float]] = {}
    for metric, value in whole.metrics.items():
        parts.setdefault(_OPERATION_OF.get(metric, "micro:operation"), {})[metric] = value
    cells = [
        replace(whole, workload=name, metrics=metrics, conditions={**whole.conditions, "workload": name})
        for name, metrics in parts.items()
        if name in measured
    ]
    return replace(source, cells=tuple(cells)) if cells else source


def _only_partners(
    base: Sequence[SourceCell], other: Sequence[SourceCell], free_base: list[int], free_other: list[int], fits: Fits
) -> dict[int, int]:
    """Return the pairs in which each cell is the only match of the other."""
    partners = {i: [j for j in free_other if fits(base[i], other[j])] for i in free_base}
    wanted = [j for found in partners.values() for j in found]
    return {i: found[0] for i, found in partners.items() if len(found) == 1 and wanted.count(found[0]) == 1}


def _key(cell: SourceCell) -> tuple[str | int | None, ...]:
    return (
        None if cell.workload == UNKNOWN else cell.workload,
        None if cell.scenario == UNKNOWN else cell.scenario,
        cell.batch_size,
        cell.tenants,
    )


def _equal(a: SourceCell, b: SourceCell) -> bool:
    return _key(a) == _key(b)


def compatible(a: SourceCell, b: SourceCell) -> bool:
    """Whether the two may be the same cell, as far as both are known."""
    return all(left is None or right is None or left == right for left, right in zip(_key(a), _key(b), strict=True))


def _alone(label: str, cell: SourceCell) -> Notice:
    return Notice("no-partner", f"not compared: {cell.title} of {label} has no unique match on the other side")


def _listed(cells: Sequence[SourceCell]) -> str:
    shown = ", ".join(cell.title for cell in cells[:5])
    return shown + (f" and {len(cells) - 5} more" if len(cells) > 5 else "")


@dataclass(frozen=True)
class Misfit:
    """A result that is not compared."""

    name: str
    error: ResultsError

    @property
    def notice(self) -> Notice:
        """Why, as a warning."""
        where = f" ({self.error.where})" if self.error.where and self.name not in self.error.where else ""
        return Notice("skipped-file", f"{self.name} is skipped: {self.error.what}{where}")


def named_path(word: StrPath) -> tuple[str, Path]:
    """Return the environment ("" if not given) and the path of `FILE` or `k8s=FILE`."""
    name, equals, path = str(word).partition("=")
    if not equals or os.sep in name or Path(word).exists():
        return "", Path(word)
    environment = environment_in(name)
    if not environment:
        raise unknown_name("environment", name, ENVIRONMENTS)
    return environment, Path(path)


def is_foreign(word: StrPath) -> bool:
    """Whether this is a result of another tool, or a log: something to compare, and not a document of ours."""
    try:
        found = format_of(Place(named_path(word)[1]))
    except ResultsError:
        return False
    return found not in (None, "gputax")


def serving_format(word: StrPath) -> str:
    """Return the load generator whose file this is; "" if it is none's."""
    found = format_of(Place(named_path(word)[1]))
    return found if found in SERVING else ""


def read_given(words: Iterable[StrPath]) -> tuple[list[Source], list[Misfit]]:
    """Read every result that can be read, in their order, and return the others with the reason."""
    sources: list[Source] = []
    misfits: list[Misfit] = []
    for environment, path in [named_path(word) for word in words]:
        try:
            sources.append(read_source(path, environment))
        except ResultsError as error:
            misfits.append(Misfit(printable(str(path)), error))
    return sources, misfits
