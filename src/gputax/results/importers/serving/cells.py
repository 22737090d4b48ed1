"""One run of a load generator as a cell: its figures by our definitions, its load, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from gputax.errors import ResultsError
from gputax.plan.comparability import Value
from gputax.plan.metrics import METRICS
from gputax.plan.notices import Notice
from gputax.plan.token_tools import Tool
from gputax.results.importers.serving.requests import Requests
from gputax.results.importers.source import UNKNOWN, CellSamples, Findings, Format, Place, Source, SourceCell, label_of
from gputax.stats.percentiles import floor_for
from gputax.text import printable


@dataclass(frozen=True)
class Run:
    """What a reader found: the requests if the file has them, else the tool's own figures."""

    tool: Tool
    version: str = ""
    model: str = ""
    load: str = UNKNOWN
    """The pattern of the load, e.g. `concurrency 4` or `poisson 10/s`."""
    requests: Requests | None = None
    summary: Mapping[str, float | None] = field(default_factory=dict)
    """By names of plan.metrics and in their units, as the tool computed them."""
    successful: int | None = None
    failed: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    """By series: how many values a percentile of the summary has, where that is not `successful`."""
    input_tokens: float | None = None
    output_tokens: float | None = None
    invalid: tuple[str, ...] = ()
    notices: tuple[Notice, ...] = ()


def concurrency(count: float | None) -> str:
    """Return the name of a closed loop."""
    return UNKNOWN if count is None else f"concurrency {count:g}"


def rate(kind: str, per_s: float | None) -> str:
    """Return the name of an open loop."""
    return UNKNOWN if per_s is None else f"{kind} {per_s:g}/s"


def source_of(place: Place, kind: Format, runs: tuple[Run, ...], measured: str = "") -> Source:
    """Return the runs of one file or directory as a source."""
    cells = tuple(_cell(run) for run in runs)
    if not any(cell.metrics for cell in cells):
        why = next((notice.text for cell in cells for notice in cell.notices), "")
        raise ResultsError(
            f"a file of {runs[0].tool.title} without a single figure" + (f" ({why})" if why else ""),
            where=place.name,
            next_step="no request was successful, or the file is of a version that is not known: see docs/formats.md",
        )
    tool = runs[0].tool
    version = f" {runs[0].version}" if runs[0].version else ""
    return Source(
        path=place.name,
        format=kind,
        label=label_of(place.path),
        cells=cells,
        device_label="a server, as its client saw it",
        notices=(Notice("other-tool", f"measured with {tool.title}{version}, without fingerprint or evidence"),),
        measured=measured,
    )


def _cell(run: Run) -> SourceCell:
    findings = Findings()
    requests = run.requests
    figures = requests.figures() if requests is not None else {}
    for name, value in figures.items():
        findings.add(name, value, "requests")
    computed = requests.series_ns if requests is not None else {}
    for name, stated in run.summary.items():
        # A percentile that the requests are too few for is not taken from the summary instead.
        if name not in figures and stated is not None and METRICS[name].series not in computed:
            _add_summary(findings, run, name, stated)
    if requests is not None and requests.impossible:
        findings.tell("left-out", f"skipped: {requests.impossible} requests with a time that is negative or no number")
    if run.failed:
        findings.tell("failed-requests", f"{run.failed} requests failed and are in no figure")
    if run.tool.translations:
        findings.tell("definitions", f"{run.tool.title}: {'; '.join(run.tool.translations)}")
    samples = requests.samples() if requests is not None and requests.requests else None
    model = printable(run.model)
    return SourceCell(
        workload=model or UNKNOWN,
        scenario=run.load,
        metrics=findings.metrics,
        conditions=_conditions(run, model),
        valid=not run.invalid,
        invalid_reasons=run.invalid,
        claim=f"as {run.tool.title} measured it at the client",
        notices=(*run.notices, *findings.notices),
        load_samples=partial(_read_before, samples) if samples is not None else None,
        meant=run.tool.meant(),
    )


def _read_before(samples: CellSamples) -> CellSamples:
    return samples


def _add_summary(findings: Findings, run: Run, name: str, value: float) -> None:
    metric = METRICS[name]
    if metric.percentile is not None:
        floor = floor_for(metric.percentile)
        count = run.counts.get(metric.series, run.successful)
        if count is not None and count < floor:
            findings.refuse(name, f"{name} needs {floor} values, there are {count}")
            return
    findings.add(name, value, run.tool.title)


def _conditions(run: Run, model: str) -> dict[str, Value | None]:
    return {
        "workload": model or None,
        "scenario": run.load if run.load != UNKNOWN else None,
        "counted": "queries",
        "client": f"{run.tool.title} {run.version}".strip(),
        "input_tokens": None if run.input_tokens is None else round(run.input_tokens, 1),
        "output_tokens": None if run.output_tokens is None else round(run.output_tokens, 1),
    }


def percentiles_ms(series: str, values: Mapping[str, float | None], per_ms: float) -> dict[str, float | None]:
    """Return the metrics of a series from a tool's own percentiles, by `p50`, `p90` and `p99`."""
    found = {f"{series}_{name}": value for name, value in values.items()}
    return {name: None if value is None else value * per_ms for name, value in found.items() if name in METRICS}


def several_runs(place: Place, names: tuple[str, ...]) -> str:
    """Return a sentence about the runs one or two levels below a directory; "" if there are none."""
    found: list[Path] = []
    for name in names:
        found += [*place.path.glob(f"*/{name}"), *place.path.glob(f"*/*/{name}")]
    below = sorted({printable(str(each.parent)) for each in found})
    if not below:
        return ""
    more = f" and {len(below) - 3} more" if len(below) > 3 else ""
    return f"name one of the directories below: {', '.join(below[:3])}{more}"
