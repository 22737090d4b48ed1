"""What an importer reads and makes: a path with its content, and a source with its cells, in our names and units."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gputax.errors import ResultsError
from gputax.plan.cells import SCENARIOS
from gputax.plan.comparability import Conditions
from gputax.plan.notices import Notice
from gputax.plan.token_tools import Meant
from gputax.results.reading import parse_json, refuse_no_text
from gputax.text import printable

Format = Literal[
    "gputax", "loadgen", "older-json", "text", "pod-log",
    "aiperf", "inference-perf", "guidellm", "vllm-bench", "mlperf-endpoints", "llm-d-report",
]  # fmt: skip
UNKNOWN = "unknown"
UNNAMED = "unnamed cell"
_WORKLOADS = (
    ("resnet50", r"resnet[-_ ]?50"),
    ("bert-large", r"bert[-_ ]?large|bert"),
    ("yolos-small", r"yolos[-_ ]?small|yolos"),
    ("micro", r"micro"),
)


@dataclass(frozen=True)
class CellSamples:
    """One row per query or batch, in order of their start."""

    begin_ns: npt.NDArray[np.int64]
    end_ns: npt.NDArray[np.int64]
    samples: npt.NDArray[np.int64]
    """Number of samples in each row."""
    series_ns: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    """What tokens add, by series: one value per request, or per gap between two tokens."""

    @property
    def latency_ns(self) -> npt.NDArray[np.int64]:
        """From the scheduled time (server) or the start (all others) to the end."""
        return self.end_ns - self.begin_ns


@dataclass(frozen=True)
class SourceCell:
    """One measurement of a source; values missing in the file are `unknown` or None."""

    workload: str = UNKNOWN
    scenario: str = UNKNOWN
    batch_size: int | None = None
    tenants: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    """By names of plan.metrics, in their units; all finite and not negative."""
    conditions: Conditions = field(default_factory=dict)
    valid: bool = True
    invalid_reasons: tuple[str, ...] = ()
    disturbed: tuple[str, ...] = ()
    """Why its machine was not quiet enough for a verdict."""
    claim: str = ""
    notices: tuple[Notice, ...] = ()
    load_samples: Callable[[], CellSamples] | None = None
    """Reads the samples when they are needed; None if there are none."""
    at_s: float | None = None
    """When it began, in seconds since 1970; None if unknown."""
    meant: Mapping[str, Meant] = field(default_factory=dict)
    """By series: what its times count, or what its tool means by their name; a missing one is not known."""
    repeats: tuple[SourceCell, ...] = ()
    """The same cell measured several times, each by a new process; empty if it was measured once."""

    @property
    def title(self) -> str:
        """The cell's title."""
        named = " ".join(name for name in (self.workload, self.scenario) if name != UNKNOWN) or UNNAMED
        batch = "" if self.batch_size is None else f" batch {self.batch_size}"
        tenants = f" x{self.tenants}" if self.tenants not in (None, 1) else ""
        return f"{named}{batch}{tenants}"


@dataclass(frozen=True)
class Source:
    """The content of one path given to `compare`."""

    path: str
    format: Format
    label: str
    cells: tuple[SourceCell, ...]
    environment: str = UNKNOWN
    device: str | None = None
    device_label: str = "device not named by the source"
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    notices: tuple[Notice, ...] = ()
    measured: str = ""
    """When, in ISO 8601."""
    measured_by: Literal["file", "mtime"] = "file"
    """Whether the file says so, or it is only the time at which the file was written."""


def writable(data: Any) -> Any:
    """Return free-form data of a file in a form valid as JSON: no lone surrogates, no NaN."""
    if isinstance(data, Mapping):
        return {writable(str(key)): writable(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [writable(value) for value in data]
    if isinstance(data, str):
        return data.encode("utf-8", errors="replace").decode()
    return None if isinstance(data, float) and not math.isfinite(data) else data


def label_of(path: Path) -> str:
    """Return a file's or directory's own name as a label."""
    return printable(path.stem if path.is_file() else path.resolve().name) or UNKNOWN


def scenario_named(text: str) -> str:
    """Return our spelling of `single_stream`, `SingleStream` or `Single-Stream`; other names stay as they are."""
    plain = re.sub(r"[^a-z]", "", text.lower())
    for scenario in SCENARIOS:
        if plain == scenario.replace("-", ""):
            return scenario
    return printable(text) or UNKNOWN


def workload_named(text: str) -> str:
    """Return our spelling of `ResNet-50`, `BERT Large` or `YOLOS`; other names stay as they are."""
    for name, pattern in _WORKLOADS:
        if re.fullmatch(pattern, text.strip(), re.IGNORECASE):
            return name
    return printable(text) or UNKNOWN


def device_name_of(text: str) -> str:
    """Return a device's name for comparison: without its vendor and its MIG slice."""
    return printable(re.sub(r"^(no GPU used: |NVIDIA )|\s+MIG\s.*$", "", text.strip()))


@dataclass
class Findings:
    """The metrics found so far; a metric that appears twice must have the same value."""

    metrics: dict[str, float] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)
    _places: dict[str, str] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)

    def add(self, metric: str, value: float | None, place: str) -> None:
        """Add a value in the metric's unit, or warn why not."""
        if metric in self._refused:
            return
        if value is None or not math.isfinite(value) or value < 0.0:
            shown = "no number" if value is None else f"{value:g}"
            self.refuse(metric, f"{metric} is {shown} ({place})")
        elif metric in self.metrics and not math.isclose(self.metrics[metric], value, rel_tol=1e-9):
            places = f"{self._places[metric]}; {place}"
            self.refuse(metric, f"{metric} appears twice with different values ({places}): one run per file")
        else:
            self.metrics[metric] = value
            self._places.setdefault(metric, place)

    def refuse(self, metric: str, why: str) -> None:
        """Skip a metric permanently."""
        self.metrics.pop(metric, None)
        self._refused.add(metric)
        self.tell("left-out", f"skipped: {why}")

    def tell(self, code: str, text: str) -> None:
        """Note something about this cell."""
        self.notices.append(Notice(code, text))


# A pod's whole log is some MB; anything larger is a model or a disk image.
LARGEST_BYTES = 256 * 1024 * 1024
# Line prefixes of kubectl --prefix, kubectl --timestamps, docker compose and a node's log files.
_PREFIXES = re.compile(
    r"^(?:\[pod/[^\]]{1,300}\] ?)?"
    r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d) ?)?"
    r"(?:std(?:out|err) [FP] )?"
)


class Place:
    """A file or a directory with its content."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = printable(str(path), 4096)
        try:
            path.stat()
        except (OSError, ValueError) as error:
            raise ResultsError(
                "no such file or directory" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}",
                where=self.name,
                next_step="name a result directory or file",
            ) from error
        self.is_directory = path.is_dir()

    @cached_property
    def text(self) -> str:
        """The file's text, or an error for an empty, binary or too large one."""
        try:
            if not self.path.is_file():
                raise ResultsError("neither a file nor a directory", where=self.name)
            if self.path.stat().st_size > LARGEST_BYTES:
                raise ResultsError(f"larger than {LARGEST_BYTES >> 20} MB: not a result file", where=self.name)
            content = self.path.read_bytes()
        except OSError as error:
            raise ResultsError(f"cannot be read: {error.strerror or error}", where=self.name) from error
        refuse_no_text(content, self.name)
        return content.decode("utf-8-sig", errors="replace")

    @cached_property
    def plain_text(self) -> str:
        """The text without the line prefixes of log collectors."""
        return "\n".join(without_prefix(line) for line in self.text.splitlines())

    @property
    def looks_like_json(self) -> bool:
        """Whether the file starts like a JSON object."""
        return not self.is_directory and self.text.lstrip().startswith("{")

    @cached_property
    def data(self) -> Any:
        """The file as JSON; None if it does not start like a JSON document."""
        if not self.text.lstrip().startswith("{"):
            return None
        return parse_json(self.text, self.name)


def without_prefix(line: str) -> str:
    """Return a log line as the program wrote it."""
    return _PREFIXES.sub("", line, count=1)
