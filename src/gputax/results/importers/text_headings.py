"""The lines of a text that say of which workload, scenario and batch the numbers below them are."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gputax.results.importers.source import UNKNOWN, scenario_named, workload_named

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
    """Of what the numbers below are."""

    workload: str = UNKNOWN
    scenario: str = UNKNOWN
    batch_size: int | None = None


def heading_of(line: str, raw: str, above: Heading) -> Heading:
    """Return what holds from this line on: `ResNet-50 Offline:`, `## Server`, `Batch size: 8`.

    A line that says anything else beside these names is prose (`Starting server:`) and changes nothing.
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
    # The wider name ends what was said of the narrower one: a new model has no batch size yet.
    if workload and not named:
        above = Heading()
    elif scenario and not named:
        above = Heading(above.workload)
    return Heading(
        workload_named(workload[1]) if workload else above.workload,
        scenario_named(scenario[1]) if scenario else above.scenario,
        int(batch[1]) if batch else above.batch_size,
    )
