"""Results as free text: `Throughput: 6,977 ops/sec`, `p99: 0.198 ms`, `H2D: 4.31 GB/s`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from gputax.errors import ResultsError
from gputax.plan.comparability import Value
from gputax.plan.notices import Notice
from gputax.results.importers.quantities import Kind, Quantity, Unit, quantities, unit_of
from gputax.results.importers.source import (
    UNKNOWN,
    Findings,
    Place,
    Source,
    SourceCell,
    device_name_of,
    label_of,
    scenario_named,
    workload_named,
)
from gputax.text import printable

CLAIM = "as a text gives it, without samples; what was measured cannot be checked"
LONGEST_LINE = 400
_LINE = re.compile(r"([^:=|]{1,80}?)\s*[:=]\s*(\S.*)")
_MARKUP = re.compile(r"\*\*|__|`|^[\s>#|]*(?:[-*+•]|\d+[.)])?\s+")
_RANGE_OR_GUESS = re.compile(r"[~<>≤≥≈]|\d\s*[-–—]\s*\d")
_LABEL_UNIT = re.compile(r"[(\[]\s*([^()\[\]]+?)\s*[)\]]|_(ms|us|ns|s)$", re.IGNORECASE)
_PERCENTILE = re.compile(
    r"(?<![\w.])p\s?(50|90|95|99)(?![\w.]*\d)|(?<![\w.])(50|90|95|99)(?:\.0+)?(?:th)?[ -]percentile"
)
_RATE = re.compile(r"\bqps\b|\b(?:samples|images|inferences|ops|queries) per sec(?:ond)?\b")
_LATENCY_WORDS = r"latency|inference time|response time|execution time"
_MEAN = re.compile(rf"\b(?:average|avg|mean)\b.*(?:{_LATENCY_WORDS})|(?:{_LATENCY_WORDS}).*\b(?:average|avg|mean)\b")
_DIRECTIONS = {
    "host_to_device": re.compile(r"\b(?:host[- ]to[- ]device|h2d|htod|h→d)\b", re.IGNORECASE),
    "device_to_host": re.compile(r"\b(?:device[- ]to[- ]host|d2h|dtoh|d→h)\b", re.IGNORECASE),
}
_GPU = re.compile(r"(?:gpu|device)(?: name| model)?", re.IGNORECASE)


@dataclass
class _Cell:
    """The metrics under one heading."""

    heading: Heading
    findings: Findings = field(default_factory=Findings)
    counted: str | None = None


def read(place: Place) -> Source:
    """Read every line that names a metric; a text without one is an error that lists the supported forms."""
    cells: dict[Heading, _Cell] = {}
    heading, device_name = Heading(), ""
    for number, raw in enumerate(place.plain_text.splitlines(), start=1):
        line = _MARKUP.sub("", raw[:LONGEST_LINE]).replace("**", "").strip()
        heading = heading_of(line, raw, heading)
        found = _LINE.fullmatch(line)
        if found is None:
            continue
        if _GPU.fullmatch(found[1]):
            device_name = device_name_of(found[2])
        _read_line(cells.setdefault(heading, _Cell(heading)), found[1], found[2], f"line {number}")
    kept = [cell for cell in cells.values() if cell.findings.metrics]
    if not kept:
        notices = [notice.text for cell in cells.values() for notice in cell.findings.notices]
        raise ResultsError(
            "no known metric in this text" + (f" ({'; '.join(notices[:3])})" if notices else ""),
            where=place.name,
            next_step="a result directory, LoadGen logs, or lines such as `Throughput: 6,977 ops/sec`, `p99: 0.198 ms`",
        )
    return Source(
        path=place.name,
        format="text",
        label=label_of(place.path),
        cells=tuple(_source_cell(cell, device_name) for cell in kept),
        device_label=f"{device_name} (as the text names it)" if device_name else Source.device_label,
        notices=(Notice("text-file", "a text file, without samples or fingerprint"),),
    )


def _read_line(cell: _Cell, label: str, rest: str, place: str) -> None:
    metric = _metric_named(label.lower())
    if metric is None:
        return
    given = list(quantities(rest))
    if _RANGE_OR_GUESS.search(rest) and given:
        cell.findings.tell("left-out", f"skipped: {printable(rest)!r} is a range or a guess, not a result ({place})")
    elif metric == "bandwidth":
        _read_bandwidths(cell.findings, rest, given, place)
    elif given:
        _read_metric(cell, metric, given, _unit_in(label), place)


def _metric_named(label: str) -> str | None:
    """Return the metric that a label names; `latency` alone is ambiguous."""
    for name, pattern in _DIRECTIONS.items():
        if pattern.search(label):
            return name
    percentile = _PERCENTILE.search(label)
    if percentile:
        return f"latency_p{percentile[1] or percentile[2]}"
    if "bandwidth" in label:
        return "bandwidth"
    if re.search(r"\bmedian\b", label):
        return "latency_p50"
    if _MEAN.search(label) or label in ("average", "avg", "mean"):
        return "latency_mean"
    return "throughput" if "throughput" in label or _RATE.search(label) else None


def _unit_in(label: str) -> str:
    """Return the unit that a label gives to a number without one: `p99 (ms)`, `Samples per second`."""
    found = _LABEL_UNIT.search(label)
    if found:
        return found[1] or found[2]
    rate = _RATE.search(label.lower())
    return rate[0] if rate else ""


def _kind(metric: str) -> Kind:
    if metric.startswith("latency"):
        return "time"
    return "rate" if metric == "throughput" else "bandwidth"


def _read_metric(cell: _Cell, metric: str, given: list[Quantity], default: str, place: str) -> None:
    """Use the numbers with a unit of the right kind; if there are two, they must agree."""
    right: list[tuple[Quantity, Unit]] = []
    for position, quantity in enumerate(given):
        if position and quantity.text.startswith(("+", "-")):
            continue  # in `13 ms (+1 ms)` the second number is the change
        unit = unit_of(quantity.unit_text or (default if position == 0 else ""))
        if unit is not None and unit.kind == _kind(metric):
            right.append((quantity, unit))
    if not right:
        shown = printable(f"{given[0].text} {given[0].unit_text}".strip())
        cell.findings.tell("left-out", f"skipped: {metric} {shown!r} has no known unit ({place})")
        return
    if any(quantity.value is None for quantity, _ in right):
        unreadable = next(quantity.text for quantity, _ in right if quantity.value is None)
        cell.findings.refuse(metric, f"{metric}: {unreadable!r} is ambiguous; write 0.14 or 6,977 ({place})")
        return
    best, unit = min(right, key=lambda pair: pair[0].last_digit * pair[1].factor)
    if not _agree(right):
        both = " and ".join(f"{quantity.text} {quantity.unit_text}" for quantity, _ in right)
        cell.findings.refuse(metric, f"{metric}: {both} do not agree ({place})")
        return
    cell.counted = unit.counted or cell.counted
    cell.findings.add(metric, (best.value or 0.0) * unit.factor, place)


def _agree(given: list[tuple[Quantity, Unit]]) -> bool:
    """Whether `0.14 ms (140 microseconds)` gives the same value twice, within its digits."""
    (first, unit), *others = given
    for other, other_unit in others:
        off = abs((first.value or 0.0) * unit.factor - (other.value or 0.0) * other_unit.factor)
        rounding = 0.505 * (first.last_digit * unit.factor + other.last_digit * other_unit.factor)
        if off > rounding:
            return False
    return True


def _read_bandwidths(findings: Findings, rest: str, given: list[Quantity], place: str) -> None:
    """Read `4.31 GB/s (H2D), 4.53 GB/s (D2H)`: the direction follows its number."""
    ends = [*(quantity.end for quantity in given[1:]), len(rest)]
    for quantity, end in zip(given, ends, strict=True):
        unit = unit_of(quantity.unit_text)
        behind = rest[quantity.end : end]
        for metric, pattern in _DIRECTIONS.items():
            if unit is not None and unit.kind == "bandwidth" and pattern.search(behind):
                value = None if quantity.value is None else quantity.value * unit.factor
                findings.add(metric, value, place)


def _source_cell(cell: _Cell, device_name: str) -> SourceCell:
    heading = cell.heading
    known: dict[str, Value | None] = {
        "workload": heading.workload if heading.workload != UNKNOWN else None,
        "scenario": heading.scenario if heading.scenario != UNKNOWN else None,
        "batch_size": heading.batch_size,
        "counted": cell.counted,
        "device_name": device_name or None,
    }
    return SourceCell(
        workload=heading.workload,
        scenario=heading.scenario,
        batch_size=heading.batch_size,
        metrics=cell.findings.metrics,
        conditions=known,
        claim=CLAIM,
        notices=tuple(cell.findings.notices),
    )


_WORKLOAD = re.compile(r"\b(resnet[-_ ]?50|bert(?:[-_ ]?large)?|yolos(?:[-_ ]?small)?)\b", re.IGNORECASE)
_SCENARIO = re.compile(r"\b(offline|server|single[-_ ]?stream|multi[-_ ]?stream|saturate)\b", re.IGNORECASE)
_BATCH = re.compile(r"\bbatch(?:[ _-]?size)?\s*[:=]?\s*(\d{1,6})\b", re.IGNORECASE)
_FILLER = re.compile(
    r"\b(?:scenario|results?|inference|benchmark|model|workload|mode|throughput|latency|test|pytorch|onnx|v1\.5|edge)\b",
    re.IGNORECASE,
)
_MARKED = re.compile(r"\s*(?:#|={2,}|-{2,}|\*\*|\[)|.*:\s*(?:\*\*)?\s*$")
_NAMED = re.compile(r"\s*(?:model|workload|scenario|batch(?:[ _-]?size)?)\s*[:=]\s*\S", re.IGNORECASE)


@dataclass(frozen=True)
class Heading:
    """The cell that the following numbers belong to."""

    workload: str = UNKNOWN
    scenario: str = UNKNOWN
    batch_size: int | None = None


def heading_of(line: str, raw: str, above: Heading) -> Heading:
    """Return the context from this line on: `ResNet-50 Offline:`, `## Server`, `Batch size: 8`.

    A line with anything else besides these names is prose (`Starting server:`) and changes nothing.
    """
    named = _NAMED.match(line) is not None
    if not named and not _MARKED.match(raw):
        return above
    workload, scenario, batch = _WORKLOAD.search(line), _SCENARIO.search(line), _BATCH.search(line)
    if not (workload or scenario or batch):
        return above
    rest = line
    for pattern in (_WORKLOAD, _SCENARIO, _BATCH, _FILLER):
        rest = pattern.sub("", rest)
    if re.search(r"[A-Za-z]", rest):
        return above
    # A wider name resets the narrower ones: a new model has no batch size yet.
    if workload and not named:
        above = Heading()
    elif scenario and not named:
        above = Heading(above.workload)
    return Heading(
        workload_named(workload[1]) if workload else above.workload,
        scenario_named(scenario[1]) if scenario else above.scenario,
        int(batch[1]) if batch else above.batch_size,
    )
