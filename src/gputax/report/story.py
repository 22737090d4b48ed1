"""From sources to the report: the answer first, then every part that it rests on, and how to repeat it; pure."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Sequence

from gputax.errors import ResultsError
from gputax.plan.cells import Setup
from gputax.report import wording
from gputax.report.answers import LayerAnswer, answer_sentence, answer_table, layer_answers
from gputax.report.comparison_sections import (
    answer_charts,
    layers_section,
    metrics_section,
    pairs_section,
    settings_table,
)
from gputax.report.duet import duet_brief
from gputax.report.fingerprints import evidence_table, fingerprint_table
from gputax.report.grouping import Measured, compared, measured_cells, pairs_of
from gputax.report.model import Chart, Fact, Report, Section, Table
from gputax.report.neighbour_tables import neighbours_table
from gputax.report.notices import facts_of, remarks_of, warnings_of
from gputax.report.obtained_table import obtained_section, obtained_table
from gputax.report.overview import overview_of
from gputax.report.run import (
    cells_section,
    cells_table,
    latency_section,
    runs_table,
    series_labels,
    telemetry_section,
    throughput_section,
)
from gputax.report.sharing import (
    answer_chart,
    heat_maps,
    neighbours_section,
    plan_table,
    sharing_section,
    tenants_section,
)
from gputax.report.sharing import evidence_table as sharing_evidence
from gputax.report.sharing_answers import Experiment, experiments_of, sharing_answers, sharing_question, techniques_of
from gputax.report.sharing_tables import answer_table as sharing_table
from gputax.report.side_by_side import NAME as SIDE_BY_SIDE
from gputax.report.sources import RunSource, Sources, cleaned, comparison_source
from gputax.results.documents.comparison import Comparison
from gputax.text import printable


def report_on(comparison: Comparison, where: str = "") -> Report:
    """Return the report of one comparison that was just made."""
    return build_report(Sources(comparisons=(comparison_source(where, comparison),)))


def build_report(read: Sources) -> Report:
    """Return everything that exporters show, from what was read."""
    sources = cleaned(read)
    rows = compared(sources.comparisons)
    cells = measured_cells(sources.runs)
    shared = experiments_of(sources.sharing)
    pairs = pairs_of(rows)
    answers = layer_answers(pairs)
    shared_answers = sharing_answers(shared, name_device=len(_devices(sources)) > 1)
    if not rows and not cells and not shared_answers and not _failures(sources):
        raise ResultsError(
            "nothing to report: nothing was measured here",
            where=", ".join(_places(sources)),
            next_step="finish the measurement: the same command resumes",
        )
    table = (
        answer_table(answers) if answers else _shared_answer(shared) if shared_answers else _run_answer(sources, cells)
    )
    answered_by = "" if table is None else table.name
    known, techniques = series_labels(cells, sources.comparisons), techniques_of(shared)
    sections = (
        layers_section(rows, detail=answered_by == SIDE_BY_SIDE),
        None if answered_by == "metrics" else metrics_section(pairs, answered=answered_by == SIDE_BY_SIDE),
        sharing_section(shared, techniques, answered=answered_by == "sharing_answer"),
        None if answered_by == "obtained" else obtained_section(shared),
        neighbours_section(shared, answered=answered_by == "neighbours"),
        throughput_section(cells, known),
        latency_section(cells, sources.comparisons, known),
        pairs_section(sources.comparisons),
        None if answered_by == "cells" else cells_section(sources.runs, cells),
        tenants_section(shared),
        telemetry_section(sources.runs, cells),
        _ground_section(sources, shared),
    )
    sentences = [answer_sentence(answers)] if answers else []
    sentences += shared_answers or ([] if answers else [_runs_sentence(sources, cells)])
    measured = _measured(sources)
    report = Report(
        overview=overview_of(answers, cells, shared, sources.comparisons, fallback=sentences[0], measured=measured),
        question=_question(sources, answers, shared if shared_answers else ()),
        answer=sentences[0],
        more_answers=tuple(sentences[1:]),
        facts=facts_of(sources),
        devices=_devices(sources),
        answer_table=table,
        answer_charts=answer_charts(answers) if answers else _shared_charts(shared, techniques, answered_by),
        sections=tuple(section for section in sections if section is not None),
        warnings=warnings_of(sources),
        remarks=remarks_of(sources),
        brief=duet_brief(sources.comparisons[0].comparison, pairs) if _lone_comparison(sources) else None,
        commands=commands_of(read, sources),
        sources=_places(sources),
        measured=measured,
    )
    return _with_names(report)


def _question(sources: Sources, answers: Sequence[LayerAnswer], shared: Sequence[Experiment]) -> str:
    questions = list(dict.fromkeys(source.comparison.question for source in sources.comparisons))
    found = []
    if answers:
        found.append(questions[0] if len(questions) == 1 and questions[0] else "What does each layer cost?")
    if shared:
        found.append(sharing_question(shared))
    return " ".join(found) or "What was measured?"


def _lone_comparison(sources: Sources) -> bool:
    return len(sources.comparisons) == 1 and not sources.runs and not sources.sharing


def _failures(sources: Sources) -> bool:
    """Whether something was tried and failed: that is worth a report too."""
    return any(run.record.failures for run in sources.runs) or any(each.record.failures for each in sources.sharing)


def _shared_answer(shared: Sequence[Experiment]) -> Table | None:
    """Return the table of the only experiment; several have one each, further down, each with its device."""
    if len(shared) != 1:
        return None
    if shared[0].points:
        return sharing_table(shared[0])
    if shared[0].record.obtained:
        return obtained_table(shared[0])
    return neighbours_table(shared[0]) if shared[0].record.neighbours else None


def _shared_charts(shared: Sequence[Experiment], known: Sequence[str], answered_by: str) -> tuple[Chart, ...]:
    """Return the charts that go with the answer's table."""
    match answered_by:
        case "sharing_answer":
            return answer_chart(shared[0], known)
        case "neighbours":
            return heat_maps(shared[0])
    return ()


def _runs_sentence(sources: Sources, cells: Sequence[Measured]) -> Fact:
    environments = list(dict.fromkeys(run.record.environment for run in sources.runs))
    invalid = sum(not cell.benchmark.valid for cell in cells)
    failed = sum(len(run.record.failures) for run in sources.runs)
    disturbed = sum(bool(cell.benchmark.disturbed) for cell in cells)
    text = f"{wording.counted(len(cells), 'cell')} measured in {wording.joined(environments)}"
    trouble = [f"{count} {word}" for count, word in ((invalid, "not valid"), (failed, "failed")) if count]
    if disturbed:
        states = ", ".join([*(trouble or ["all valid"]), f"{disturbed} DISTURBED"])
        return Fact(f"{text}; {states}.", "fail" if trouble else "inconclusive")
    return Fact(f"{text}; {', '.join(trouble)}." if trouble else f"{text}, all valid.", "fail" if trouble else "")


def _run_answer(sources: Sources, cells: Sequence[Measured]) -> Table:
    """Return the one table of a lone run, and an overview of several."""
    lone = len(sources.runs) == 1 and cells and not sources.runs[0].record.failures
    return cells_table(sources.runs[0], cells) if lone else runs_table(sources.runs)


def _devices(sources: Sources) -> tuple[str, ...]:
    devices = [run.record.device_label for run in sources.runs if run.record.benchmarks]
    devices += [side.device_label for source in sources.comparisons for side in source.comparison.sides]
    devices += [source.record.device_label for source in sources.sharing]
    return tuple(dict.fromkeys(devices))


def _ground_section(sources: Sources, shared: Sequence[Experiment]) -> Section | None:
    found = (
        settings_table(sources.comparisons),
        *(plan_table(each) for each in shared),
        evidence_table(sources),
        *(sharing_evidence(each) for each in shared),
        fingerprint_table(sources),
    )
    tables: tuple[Table, ...] = tuple(table for table in found if table is not None)
    return Section("ground", "Settings, evidence and fingerprints", tables=tables, folded=True) if tables else None


def _places(sources: Sources) -> tuple[str, ...]:
    places = [*(run.directory for run in sources.runs), *(source.path for source in sources.comparisons)]
    places += [source.path for source in sources.sharing]
    return tuple(place for place in places if place)


def _measured(sources: Sources) -> str:
    """Return when the numbers were measured, which for compared files is not when they were compared."""
    stamps = [run.record.timestamp for run in sources.runs]
    stamps += [stamp for source in sources.comparisons for stamp in source.measured]
    stamps += [source.record.timestamp for source in sources.sharing]
    if not stamps:
        compared_at = wording.moment(max(source.comparison.timestamp for source in sources.comparisons))
        return f"at an unknown time (compared {compared_at})"
    moments = list(dict.fromkeys(wording.moment(stamp) for stamp in sorted(stamps)))
    span = moments[0] if len(moments) == 1 else f"{moments[0]} to {moments[-1]}"
    sides = [side for source in sources.comparisons for side in source.comparison.sides]
    undated = list(dict.fromkeys(side.label for side in sides if side.measured_by == "mtime"))
    return f"{span} ({wording.some(undated)}: the time of the file, which has no date)" if undated else span


def _with_names(report: Report) -> Report:
    """Return the report with every chart numbered within its kind: names of files, never made of results' texts."""
    counts: dict[str, int] = {}

    def named(chart: Chart) -> Chart:
        counts[chart.name] = counts.get(chart.name, 0) + 1
        return dataclasses.replace(chart, name=f"{chart.name}-{counts[chart.name]}")

    first = report.overview.chart
    return dataclasses.replace(
        report,
        overview=dataclasses.replace(report.overview, chart=None if first is None else named(first)),
        answer_charts=tuple(named(chart) for chart in report.answer_charts),
        sections=tuple(
            dataclasses.replace(section, charts=tuple(named(chart) for chart in section.charts))
            for section in report.sections
        ),
    )


LONGEST_COMMAND = 4096
# The verbs that write a document with their command. Not `exec`, for example, which runs any program.
VERBS = ("run", "duet", "compare", "share", "demo")


def commands_of(read: Sources, sources: Sources) -> tuple[str, ...]:
    """Return how to measure it again, and how to write this report.

    `sources` are those that were `read`, with their texts made printable; only the original of a command shows whether
    it is one that may be pasted.
    """
    commands = [_run_command(run) for run in sources.runs if run.record.benchmarks]
    for comparison in read.comparisons:
        commands += _named_in(comparison.path, comparison.comparison.command)
    for shared in read.sharing:
        commands += _named_in(shared.path, shared.record.command)
    places = [*(run.directory for run in sources.runs), *(source.path for source in sources.comparisons if source.path)]
    places += [source.path for source in sources.sharing if source.path]
    commands += [shlex.join(["gputax", "report", *places])] if places else []
    return tuple(dict.fromkeys(commands))


def _named_in(path: str, command: str) -> list[str]:
    """Return a document's command below a comment that says whose words it is; somebody else may have written it."""
    if not command:
        return []
    words = _own_words(command)
    place = printable(path, LONGEST_COMMAND)
    if words is None:
        return [f"# {place or 'A comparison'} names a command that is not shown: it is not a measurement with gputax"]
    # Quoted again, so that a shell takes every word as a word.
    return [*([f"# As {place} says:"] if place else []), shlex.join(words)]


def _own_words(command: str) -> list[str] | None:
    """Return the words of a command of ours; None for another one, and for one with control characters."""
    if len(command) > LONGEST_COMMAND or not command.isprintable():
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    return words if words[:1] == ["gputax"] and words[1:2] and words[1] in VERBS else None


def _run_command(run: RunSource) -> str:
    """Return a command for the same cells; how long each load was is in the record, under `load`."""
    benchmarks = run.record.benchmarks
    first = benchmarks[0]

    def several(values: Iterable[object]) -> str:
        return ",".join(dict.fromkeys(str(value) for value in values))

    batched = [each.batch_size for each in benchmarks if each.scenario not in ("single_stream", "multi_stream")]
    words = ["gputax", "run", "--env", run.record.environment]
    repeats = max(each.repeat for each in benchmarks)
    often = ["--repeats", str(repeats)] if repeats > 1 else []
    setup = Setup.from_dict(run.record.plan[0]["setup"]) if run.record.plan else Setup(first.workload)
    if setup.program.words:
        return shlex.join([*words, *often, *setup.program.options, "--", *setup.program.words])
    words += setup.own.options or ["--workload", several(each.workload for each in benchmarks)]
    words += ["--scenario", several(each.scenario.replace("_", "-") for each in benchmarks)]
    words += ["--batch", several(batched)] if batched else []
    words += ["--engine", first.engine, "--device", first.device]
    words += ["--precision", first.precision] if first.precision in ("fp32", "fp16") and not setup.own.file else []
    return shlex.join([*words, "--threads", str(first.threads), *often])
