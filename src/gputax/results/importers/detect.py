"""Detect the format of a path by its content, read it, and say where and when it was measured."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from gputax.errors import ResultsError, UsageError
from gputax.plan.environment import environment_in
from gputax.plan.notices import Notice
from gputax.results.documents.comparison import COMPARISON_NAME
from gputax.results.documents.run import RECORD_NAME
from gputax.results.importers import loadgen, older_json, pod_log, record_source, text_results
from gputax.results.importers.loadgen import DETAIL_NAME, SUMMARY_NAME
from gputax.results.importers.record_source import record_place
from gputax.results.importers.serving import (
    aiperf,
    guidellm,
    inference_perf,
    llmd_report,
    mlperf_endpoints,
    vllm_bench,
)
from gputax.results.importers.serving.cells import several_runs
from gputax.results.importers.source import UNKNOWN, Format, Place, Source
from gputax.results.importers.text_results import LONGEST_LINE
from gputax.text import printable

# Every tool gives these names to its output, so only the directory says which measurement it is.
COMMON_NAMES = ("mlperf_log_summary", "mlperf_log_detail", "benchmark_results", "micro_results", "results")
_ENVIRONMENT = re.compile(r"[\s>#|*_-]*(?:environment|env)[\s*_]*[:=][\s*_]*(\S.*)", re.IGNORECASE)
_DATE = re.compile(r"[\s>#|*_-]*(?:date|timestamp|measured(?: on| at)?|time)[\s*_]*[:=][\s*_]*(\S.*)", re.IGNORECASE)
_LOADGEN_DATE = re.compile(r'"key": "test_datetime", "value": "([^"]{1,40})"')
_ISO = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d)?(?:\.\d+)?)? ?(Z|UTC|[+-]\d\d:?\d\d)?")
# As the command `date` prints it.
_UNIX_DATE = re.compile(r"\w{3} (\w{3}) +(\d{1,2}) (\d\d:\d\d:\d\d) (?:UTC|GMT) (\d{4})")


def with_origin(source: Source, place: Place, given: str) -> Source:
    """Return the source with its environment and its date; our own records state both."""
    if source.environment != UNKNOWN:
        if given and given != source.environment:
            raise UsageError(
                f"this is a result of {source.environment}, not of {given}",
                where=place.name,
                next_step=f"name it {source.environment}={place.name}, or only {place.name}",
            )
        return source
    inside, by_name = _environment_inside(source, place), environment_in(_own_name(place.path))
    environment = given or inside or by_name
    notices = list(source.notices)
    if not given and inside and by_name and inside != by_name:
        text = f"the file says {inside}, its name says {by_name}: taken as {inside}"
        notices.append(Notice("environment-unclear", text))
    stamp = date_in(source.measured) or _stamp_inside(source, place)
    if environment:
        source = dataclasses.replace(source, environment=environment, label=environment)
    return dataclasses.replace(
        source,
        notices=tuple(notices),
        measured=stamp or _file_time(place.path),
        measured_by="file" if stamp else "mtime",
    )


def _own_name(path: Path) -> str:
    """Return the name that tells this measurement from others."""
    path = path.resolve()
    return path.parent.name if path.is_file() and path.stem in COMMON_NAMES else path.stem


def _environment_inside(source: Source, place: Place) -> str:
    if source.format == "older-json":
        document = record_place(place)
        return environment_in(str(document.data.get("environment", ""))) if document is not None else ""
    if source.format in SERVING:
        return ""  # what a line of a prompt or a configuration says is not where it was measured
    found = (_ENVIRONMENT.match(line) for line in _lines(place))
    named = {environment_in(each[1][:LONGEST_LINE]) for each in found if each}
    # A file about several environments does not say which of them it is.
    return named.pop() if len(named) == 1 else ""


def _stamp_inside(source: Source, place: Place) -> str:
    if source.format == "older-json":
        document = record_place(place)
        return date_in(str(document.data.get("timestamp", ""))) if document is not None else ""
    if source.format in SERVING:
        return ""
    found = (_LOADGEN_DATE.search(line) or _DATE.match(line) for line in _lines(place))
    stamps = (date_in(each[1]) for each in found if each)
    return next((stamp for stamp in stamps if stamp), "")


def _lines(place: Place) -> Iterator[str]:
    """Yield the lines of the file; of a directory, those of LoadGen's logs."""
    if not place.is_directory:
        yield from place.plain_text.splitlines()
        return
    for name in (DETAIL_NAME, SUMMARY_NAME):
        if (place.path / name).is_file():
            yield from Place(place.path / name).text.splitlines()


def date_in(text: str) -> str:
    """Return the date or time that a text begins with, in ISO 8601; "" if it is not clear (12/11/2025)."""
    unix = _UNIX_DATE.match(text)
    if unix:
        text = _iso_of(f"{unix[4]} {unix[1]} {unix[2]} {unix[3]}")
    found = _ISO.match(text)
    if found is None:
        return ""
    date, minutes, seconds, zone = found.groups()
    try:
        datetime.fromisoformat(f"{date}T{minutes or '00:00'}{seconds or ''}")
    except ValueError:
        return ""
    zone = {"Z": "+00:00", "UTC": "+00:00", None: ""}.get(zone, zone or "")
    return f"{date}T{minutes}{seconds or ':00'}{zone}" if minutes else date


def _iso_of(text: str) -> str:
    try:
        return f"{datetime.strptime(text, '%Y %b %d %H:%M:%S'):%Y-%m-%dT%H:%M:%S}+00:00"
    except ValueError:
        return ""


def _file_time(path: Path) -> str:
    """Return when the file was last written; of a directory, its newest file."""
    files = [each for each in path.iterdir() if each.is_file()] if path.is_dir() else [path]
    newest = max((file.stat().st_mtime for file in files), default=path.stat().st_mtime)
    return datetime.fromtimestamp(newest, UTC).isoformat(timespec="seconds")


SERVING: tuple[Format, ...] = (
    "aiperf", "inference-perf", "guidellm", "vllm-bench", "mlperf-endpoints", "llm-d-report",
)  # fmt: skip
Recognises = Callable[[Place], bool]
Read = Callable[[Place], Source]
# In this order: a log with our block may also contain LoadGen's summary, a log may start with a line of JSON, and every
# file can be read as text.
FORMATS: dict[Format, tuple[Recognises, Read]] = {
    "pod-log": (pod_log.recognises, pod_log.read),
    "loadgen": (loadgen.recognises, loadgen.read),
    "aiperf": (aiperf.recognises, aiperf.read),
    "inference-perf": (inference_perf.recognises, inference_perf.read),
    "guidellm": (guidellm.recognises, guidellm.read),
    "vllm-bench": (vllm_bench.recognises, vllm_bench.read),
    "mlperf-endpoints": (mlperf_endpoints.recognises, mlperf_endpoints.read),
    "llm-d-report": (llmd_report.recognises, llmd_report.read),
    "gputax": (record_source.recognises, record_source.read),
    "older-json": (older_json.recognises, older_json.read),
    "text": (lambda place: not place.is_directory and place.data is None, text_results.read),
}


_RUN_FILES = (
    aiperf.RECORDS_NAME, aiperf.SUMMARY_NAME, inference_perf.REQUESTS_NAME, inference_perf.SUMMARY_NAME,
    guidellm.FILE_NAME, f"performance/{mlperf_endpoints.SUMMARY_NAME}", mlperf_endpoints.SUMMARY_NAME,
)  # fmt: skip


def read_source(path: Path, environment: str = "") -> Source:
    """Read the path in any known format, or say why it is not a result; the environment is what the caller knows."""
    place = Place(path)
    found = format_of(place)
    if found is None:
        raise ResultsError("no results in a known format", where=place.name, next_step=_advice(place))
    _, read = FORMATS[found]
    return with_origin(read(place), place, environment)


def format_of(place: Place) -> Format | None:
    """Return the first format that recognises the place; None if none does."""
    return next((name for name, (recognises, _) in FORMATS.items() if recognises(place)), None)


def _advice(place: Place) -> str:
    if not place.is_directory:
        return "this JSON has neither a schema version nor a list of benchmarks"
    if (place.path / COMPARISON_NAME).is_file():
        return "this is a comparison: `gputax report` shows it; compare needs measured results"
    below = several_runs(place, _RUN_FILES)
    if below:
        return below
    names = (RECORD_NAME, loadgen.DETAIL_NAME, loadgen.SUMMARY_NAME)
    for name in names:
        deeper = sorted(place.path.glob(f"*/{name}"))[:3] or sorted(place.path.glob(f"*/*/{name}"))[:3]
        if deeper:
            return "name one of the directories below: " + ", ".join(printable(str(found.parent)) for found in deeper)
    return f"a result directory contains {RECORD_NAME}, or LoadGen's {' or '.join(names[1:])}"
