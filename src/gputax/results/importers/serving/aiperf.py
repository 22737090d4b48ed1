"""aiperf's artifacts: `profile_export.jsonl` with every request, and `profile_export_aiperf.json` with its figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputax.errors import ResultsError
from gputax.plan.token_tools import AIPERF
from gputax.plan.tokens import ITL, TPOT, TTFT
from gputax.results.importers.serving.cells import Run, concurrency, percentiles_ms, rate, source_of
from gputax.results.importers.serving.fields import at, document, finite, first_line, json_lines, number, numbers, text
from gputax.results.importers.serving.requests import Request, Requests
from gputax.results.importers.source import UNKNOWN, Place, Source

RECORDS_NAME = "profile_export.jsonl"
SUMMARY_NAME = "profile_export_aiperf.json"
# In seconds; the file names the unit of every value.
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "sec": 1.0, "s": 1.0}


def recognises(place: Place) -> bool:
    """Whether these are aiperf's files: its directory, or one of the two."""
    if place.is_directory:
        return any((place.path / name).is_file() for name in (RECORDS_NAME, SUMMARY_NAME))
    if not place.looks_like_json:
        return False
    first = first_line(place)
    return _is_record(first) or _is_summary(document(place))


def _is_record(data: Any) -> bool:
    return at(data, "metadata", "request_start_ns") is not None and isinstance(at(data, "metrics"), Mapping)


def _is_summary(data: Any) -> bool:
    return isinstance(data, Mapping) and "aiperf_version" in data


def read(place: Place) -> Source:
    """Read the requests and the figures, as far as they are there."""
    if place.is_directory:
        files = {name: Place(place.path / name) for name in (RECORDS_NAME, SUMMARY_NAME)
                 if (place.path / name).is_file()}  # fmt: skip
        records, summary = files.get(RECORDS_NAME), files.get(SUMMARY_NAME)
    else:
        records, summary = (place, None) if _is_record(first_line(place)) else (None, place)
    data = summary.data if summary is not None else {}
    if summary is not None and not _is_summary(data):
        raise ResultsError("not a summary of aiperf: it names no aiperf_version", where=summary.name)
    requests, failed = _requests(records) if records is not None else (None, 0)
    count = finite(data, "request_count", "avg")
    cancelled = at(data, "was_cancelled") is True
    run = Run(
        AIPERF,
        version=text(data, "aiperf_version"),
        model=_model(data),
        load=_load(data),
        requests=requests,
        summary=_summary(data),
        successful=None if count is None else int(count),
        failed=failed or int(finite(data, "error_request_count", "avg") or 0),
        counts={ITL: int(finite(data, "inter_chunk_latency", "count") or 0)},
        input_tokens=finite(data, "input_sequence_length", "avg"),
        output_tokens=finite(data, "output_sequence_length", "avg"),
        invalid=("the run was cancelled",) if cancelled else (),
    )
    return source_of(place, "aiperf", (run,), text(data, "start_time"))


def _requests(place: Place) -> tuple[Requests, int]:
    found, failed = [], 0
    for record in json_lines(place):
        if at(record, "metadata", "benchmark_phase") not in (None, "profiling"):
            continue  # its warm-up
        if at(record, "error") is not None or at(record, "metadata", "was_cancelled") is True:
            failed += 1
            continue
        latency_s, start_ns = _seconds(record, "request_latency"), number(record, "metadata", "request_start_ns")
        if latency_s is None or start_ns is None:
            raise ResultsError(
                "a request without request_latency or request_start_ns",
                where=place.name,
                next_step="this version of aiperf is not known: see docs/formats.md",
            )
        tokens = finite(record, "metrics", "output_sequence_length", "value")
        unit = UNITS.get(text(record, "metrics", "inter_chunk_latency", "unit"), 0.0)
        gaps = numbers(record, "metrics", "inter_chunk_latency", "value") if unit else ()
        found.append(
            Request(
                start_ns / 1e9,
                latency_s,
                _seconds(record, "time_to_first_token"),
                _seconds(record, "inter_token_latency"),
                None if tokens is None else int(tokens),
                tuple(gap * unit for gap in gaps),
            )
        )
    return Requests.of(found), failed


def _seconds(record: Any, name: str) -> float | None:
    value, unit = number(record, "metrics", name, "value"), UNITS.get(text(record, "metrics", name, "unit"))
    return None if value is None or unit is None else value * unit


def _summary(data: Mapping[str, Any]) -> dict[str, float | None]:
    def percentiles(series: str, name: str) -> dict[str, float | None]:
        unit = UNITS.get(text(data, name, "unit"))
        values = {f"p{percent}": number(data, name, f"p{percent}") for percent in (50, 90, 95, 99)}
        return {} if unit is None else percentiles_ms(series, values, unit * 1e3)

    return {
        **percentiles(TTFT, "time_to_first_token"),
        **percentiles(TPOT, "inter_token_latency"),
        **percentiles(ITL, "inter_chunk_latency"),
        **percentiles("latency", "request_latency"),
        "throughput": number(data, "request_throughput", "avg"),
        "tokens_per_s": number(data, "output_token_throughput", "avg"),
    }


def _model(data: Mapping[str, Any]) -> str:
    items = at(data, "input_config", "models", "items")
    if isinstance(items, list):
        return ", ".join(text(each, "name") for each in items)
    names = at(data, "input_config", "endpoint", "model_names")  # until 0.12
    return ", ".join(map(str, names)) if isinstance(names, list) else ""


def _load(data: Mapping[str, Any]) -> str:
    phases = at(data, "input_config", "phases")
    measured = [each for each in phases if at(each, "kind") == "profiling"] if isinstance(phases, list) else []
    phase = measured[0] if len(measured) == 1 else at(data, "input_config", "loadgen")
    per_s = finite(phase, "rate") or finite(phase, "request_rate")
    if per_s is not None:
        return rate(text(phase, "type") or text(phase, "request_rate_mode") or "rate", per_s)
    count = finite(phase, "concurrency")
    return UNKNOWN if count is None else concurrency(count)
