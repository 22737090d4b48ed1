"""What must be read with the answer: warnings, and what the machine can resolve; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gputax.plan.notices import CATALOGUE, Notice, Remark, remarks
from gputax.report import wording
from gputax.report.duet import why_facts
from gputax.report.grouping import run_labels
from gputax.report.model import Fact
from gputax.report.sharing_answers import (
    cell_reasons,
    experiments_of,
    fails_by_nature,
    neighbour_reason,
    technique_title,
)
from gputax.report.sources import ComparisonSource, RunSource, Sources, Unreadable
from gputax.results.documents.base import WarningRecord
from gputax.results.documents.comparison import Resolution
from gputax.results.documents.run import Benchmark
from gputax.results.documents.sharing import NeighbourRow, SharingRecord
from gputax.text import percent

# The tables explain their own dashes.
EXPLAINED_BY_TABLES = ("too-few-samples",)
SHORT_TEXT = 70
NOT_ACTIVE = Fact("the layer was not active while it was measured.", "fail")
UNCHECKED = "The figures are those stored in the document and cannot be recomputed."
UNPAIRED = "Unpaired comparison (weaker): `gputax duet` measures both sides in alternation."
NOTHING_COMPARED = (
    "No verdict: nothing was compared. `gputax compare A B` judges results on disk, `gputax duet` measures in pairs."
)


def facts_of(sources: Sources) -> tuple[Fact, ...]:
    """Return the lines directly below the answer."""
    found = [source.comparison.resolution for source in sources.comparisons if source.comparison.resolution is not None]
    facts = [_noise_floor(each) for each in sources.resolutions] + _resolutions(list(dict.fromkeys(found)))
    facts += [fact for source in sources.comparisons for fact in why_facts(source.comparison)]
    if sources.comparisons and all(
        not metric.paired for each in sources.comparisons for metric in each.comparison.metrics
    ):
        facts.append(Fact(UNPAIRED))
    if sources.runs and not sources.comparisons and not sources.sharing:
        facts.append(Fact(NOTHING_COMPARED))
    return tuple(dict.fromkeys(facts))


def _noise_floor(found: Resolution) -> Fact:
    """Return the machine's noise floor: what two equal sides differ by."""
    basis = f"A against A: {found.pairs:,} pairs in {found.seconds:.0f} s"
    if wording.finite(found.half_width_percent) is None:
        return Fact(f"Noise floor of this machine: unknown ({basis} give no interval).", "inconclusive")
    return Fact(f"Noise floor of this machine: ±{percent(found.half_width_percent)} ({basis}).")


def _resolutions(controls: list[Resolution]) -> list[Fact]:
    """Return the coarsest A/A control, which limits every answer, and each that found a difference."""
    known = [control for control in controls if wording.finite(control.half_width_percent) is not None]
    facts = [
        Fact(
            "The smallest overhead that this machine can resolve is unknown: the A/A control has no interval.",
            "inconclusive",
        )
    ]
    if known:
        worst = max(known, key=lambda control: control.half_width_percent)
        count = f"worst of {len(known)} A/A controls" if len(known) > 1 else "A/A control"
        basis = f"{count}: {worst.pairs:,} pairs in {worst.seconds:.0f} s"
        facts = [
            Fact(
                f"The smallest overhead that this machine can resolve is {percent(worst.half_width_percent)} ({basis})."
            )
        ]
    for control in controls:
        if not control.contains_zero:
            interval = wording.bounds_text(control.ci95_percent, "%")
            facts.append(
                Fact(
                    f"The A/A control shows a difference between equal sides ({interval}): do not trust this result.",
                    "fail",
                )
            )
    return facts if controls else []


def warnings_of(sources: Sources) -> tuple[Fact, ...]:
    """Return every warning once, with all the places that share it."""
    placed: list[tuple[str, Fact]] = []
    for run, label in zip(sources.runs, run_labels(sources.runs), strict=True):
        record = run.record
        placed += [(label, fact) for fact in _run_faults(run)]
        placed += [(label, Fact(warning.text)) for warning in record.warnings]
        placed += [(label, fact) for fact in _worst_of_each(_cell_notices(record.benchmarks))]
    for source in sources.comparisons:
        placed += _comparison_faults(source)
        placed += [(place, Fact(notice.text)) for place, notice in _comparison_notices(source)]
    for experiment, shared in zip(experiments_of(sources.sharing), sources.sharing, strict=True):
        facts = (
            *_sharing_faults(experiment.record),
            *(Fact(warning.text) for warning in experiment.record.warnings),
            *_worst_of_each(_tenant_notices(experiment.record)),
            *_open_by_nature(experiment.record),
            *_sample_faults(shared.samples),
        )
        placed += [(experiment.title, fact) for fact in facts]
    return _placed_once(placed)


def remarks_of(sources: Sources) -> tuple[Fact, ...]:
    """Return what a terminal shows: every fault, and each kind of warning on one short line with its worst value."""
    faults: list[tuple[str, Fact]] = []
    notices: list[tuple[str, Notice]] = []
    for run, label in zip(sources.runs, run_labels(sources.runs), strict=True):
        faults += [(label, fact) for fact in _run_faults(run)]
        notices += [(label, warning.notice) for warning in run.record.warnings]
        notices += [
            (place, notice)
            for each in run.record.benchmarks
            for place, notice in _cell_notices([each])
            if not (each.disturbed and is_about_machine(notice))
        ]
    for source in sources.comparisons:
        faults += _comparison_faults(source)
        notices += _comparison_notices(source)
    for experiment, shared in zip(experiments_of(sources.sharing), sources.sharing, strict=True):
        record = experiment.record
        faults += [(experiment.title, fact) for fact in (*_sharing_faults(record), *_sample_faults(shared.samples))]
        notices += [(experiment.title, warning.notice) for warning in record.warnings]
        notices += _tenant_notices(record)
    if Fact(UNPAIRED) in facts_of(sources):
        notices = [(place, notice) for place, notice in notices if notice.code != "unpaired"]
    return (*_placed_once(faults), *map(_short, remarks((place, _by_text(notice)) for place, notice in notices)))


def _by_text(notice: Notice) -> Notice:
    """Return a notice whose kind is how its text begins, where it has no value: drift and outliers are both `pairs`."""
    return notice if notice.value is not None else replace(notice, code=f"{notice.code}: {notice.text.split(' ')[0]}")


def _short(remark: Remark) -> Fact:
    """Return the kind with its worst value and where; a single short text is kept as it is."""
    if remark.count == 1 and len(remark.worst.text) <= SHORT_TEXT:
        return Fact(remark.worst.text)
    several = len(remark.places) > 1
    if remark.worst.value is None:
        return Fact(f"{remark.worst.text} ({len(remark.places)} places)" if several else remark.worst.text)
    return Fact(
        f"{remark.title} ({len(remark.places)} places, worst: {remark.worst_place})" if several else remark.title
    )


def _placed_once(placed: Iterable[tuple[str, Fact]]) -> tuple[Fact, ...]:
    places: dict[Fact, list[str]] = {}
    for place, fact in placed:
        places.setdefault(fact, []).append(place)
    return tuple(
        Fact(f"{wording.joined(list(dict.fromkeys(where)))}: {fact.text}", fact.tone) for fact, where in places.items()
    )


def _run_faults(run: RunSource) -> list[Fact]:
    record = run.record
    found = []
    if not record.complete:
        done, planned = len(record.benchmarks), len(record.cells_planned)
        found.append(Fact(f"unfinished, {done} of {planned} cells are measured ({run.directory}).", "fail"))
    found += [Fact(f"{failure.cell} failed: {failure.what}", "fail") for failure in record.failures]
    invalid = [benchmark.name for benchmark in record.benchmarks if not benchmark.valid]
    if invalid:
        found.append(Fact(f"not valid: {wording.joined(invalid)}.", "fail"))
    found += disturbed_facts((each.name, each.disturbed) for each in record.benchmarks)
    if record.evidence.get("active") is False:
        found.append(NOT_ACTIVE)
    if run.missing:
        names = ", ".join(run.missing[:4]) + (" …" if len(run.missing) > 4 else "")
        found.append(Fact(f"files named in the record are missing, so their charts are too: {names}."))
    return found


def is_about_machine(notice: Notice) -> bool:
    """Whether it is a disturbance of the machine; a cell that is labelled with it need not repeat it."""
    return notice.code in CATALOGUE and CATALOGUE[notice.code].area == "machine"


def disturbed_facts(cells: Iterable[tuple[str, Sequence[str]]]) -> list[Fact]:
    """Return one line for all cells that were disturbed: how many, the first, and why."""
    disturbed = [(cell, reasons) for cell, reasons in cells if reasons]
    if not disturbed:
        return []
    first, reasons = disturbed[0]
    more = f" and {len(disturbed) - 1} more" if len(disturbed) > 1 else ""
    return [Fact(f"DISTURBED, no verdict: {first}{more}: {'; '.join(reasons)}", "inconclusive")]


def _cell_notices(benchmarks: Sequence[Benchmark]) -> list[tuple[str, Notice]]:
    return [(each.name, notice) for each in benchmarks for notice in _unexplained(each.warnings)]


def _worst_of_each(notices: Iterable[tuple[str, Notice]]) -> list[Fact]:
    """Return one line per kind of warning: its worst case, and how many cells share it."""
    lines = []
    for remark in remarks(notices):
        cells = len(remark.places)
        more = f"; worst of {cells} cells" if cells > 1 else ""
        lines.append(Fact(f"{remark.worst.text} ({remark.worst_place}{more})"))
    return lines


def _comparison_faults(source: ComparisonSource) -> list[tuple[str, Fact]]:
    sides = source.comparison.sides
    found = [(side.label, NOT_ACTIVE) for side in sides if side.evidence.get("active") is False]
    disturbed = source.comparison.disturbed
    return found + [("DISTURBED, no verdict", Fact(text, "inconclusive")) for text in disturbed]


def _comparison_notices(source: ComparisonSource) -> list[tuple[str, Notice]]:
    """Return what each warning is about, and the warning."""
    comparison = source.comparison
    labels = [side.label for side in comparison.sides]
    sides = f"{wording.joined(labels[1:])} against {labels[0]}" if len(labels) > 1 else "".join(labels)
    found = [(sides, warning.notice) for warning in comparison.warnings]
    for metric in comparison.metrics:
        cell = wording.cell_title(metric.workload, metric.scenario, metric.batch_size)
        place = f"{metric.other} against {metric.base}, {cell} {wording.metric_title(metric.metric)}"
        found += [(place, notice) for notice in _unexplained(metric.warnings)]
    return found


def _sharing_faults(record: SharingRecord) -> list[Fact]:
    """Return what does not count and why, each reason once."""
    found = []
    if not record.complete:
        done, planned = len(record.cells), len(record.cells_planned)
        found.append(Fact(f"unfinished, {done} of {planned} cells are measured.", "fail"))
    found += [Fact(f"{failure.cell} failed: {failure.what}", "fail") for failure in record.failures]
    reasons: dict[str, list[str]] = {}
    for cell in record.cells:
        for reason in cell_reasons(cell):
            reasons.setdefault(reason, []).append(cell.cell)
    for row in record.neighbours:
        if not row.valid:
            reasons.setdefault(neighbour_reason(row), []).append(
                f"{technique_title(row.technique)} beside {row.aggressor}"
            )
    found += [Fact(f"{wording.some(cells)} not valid: {reason}", "fail") for reason, cells in reasons.items()]
    found += disturbed_facts((cell.cell, cell.disturbed) for cell in record.cells)
    found += disturbed_facts((_beside(row), row.disturbed) for row in record.neighbours)
    found += [
        Fact(f"isolation is broken: {technique_title(row.technique)}, {row.check}: {row.text}", "fail")
        for row in record.isolation
        if row.passed is False and not fails_by_nature(row)
    ]
    return found


def _tenant_notices(record: SharingRecord) -> list[tuple[str, Notice]]:
    found = [(cell.cell, notice) for cell in record.cells if cell.valid for notice in _unexplained(cell.warnings)]
    return found + [
        (_beside(row), notice) for row in record.neighbours if row.valid for notice in _unexplained(row.warnings)
    ]


def _open_by_nature(record: SharingRecord) -> list[Fact]:
    """Return what stand-ins cannot isolate; last, because no measurement failed."""
    by_text: dict[str, list[str]] = {}
    for row in record.isolation:
        if fails_by_nature(row):
            by_text.setdefault(row.text, []).append(technique_title(row.technique))
    return [
        Fact(f"{wording.joined(names)}: memory is not isolated, by nature of a stand-in: {text}")
        for text, names in by_text.items()
    ]


def _sample_faults(samples: Unreadable) -> list[Fact]:
    """Return the samples that cannot be read; the figures are stored in the document and do not need them."""
    found = []
    if samples.damaged:
        found.append(
            Fact(
                f"cannot be read: {wording.some(samples.damaged)}: truncated, or not a Parquet file. {UNCHECKED}",
                "fail",
            )
        )
    if samples.missing:
        found.append(Fact(f"cannot be read: {wording.some(samples.missing)}: missing. {UNCHECKED}"))
    return found


def _beside(row: NeighbourRow) -> str:
    return f"{technique_title(row.technique)} beside {row.aggressor}"


def _unexplained(warnings: Iterable[WarningRecord]) -> list[Notice]:
    return [warning.notice for warning in warnings if warning.code not in EXPLAINED_BY_TABLES]
