"""guidellm's `benchmarks.json`: one cell per benchmark, computed from its requests."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gputax.plan.notices import Notice
from gputax.plan.token_tools import guidellm_of
from gputax.plan.tokens import TTFT
from gputax.results.importers.serving.cells import Run, concurrency, percentiles_ms, rate, source_of
from gputax.results.importers.serving.fields import at, document, finite, number, text
from gputax.results.importers.serving.requests import Request, Requests, per_token
from gputax.results.importers.source import UNKNOWN, Place, Source

FILE_NAME = "benchmarks.json"


def recognises(place: Place) -> bool:
    """Whether there is guidellm's list of benchmarks, with the metrics of its requests."""
    file = _file(place)
    return file is not None and file.looks_like_json and _benchmarks(document(file)) != []


def _file(place: Place) -> Place | None:
    if not place.is_directory:
        return place
    path = place.path / FILE_NAME
    return Place(path) if path.is_file() else None


def _benchmarks(data: Any) -> list[Any]:
    found = at(data, "benchmarks")
    if not isinstance(found, list) or at(data, "metadata") is None:
        return []
    return [each for each in found if at(each, "metrics", "time_to_first_token_ms") is not None]


def read(place: Place) -> Source:
    """Read every benchmark of the file."""
    file = _file(place)
    assert file is not None
    data = file.data
    version = text(data, "metadata", "guidellm_version")
    found = _benchmarks(data)
    runs = tuple(_run(each, version) for each in found)
    start_s = finite(found[0], "start_time")
    measured = "" if start_s is None else datetime.fromtimestamp(start_s, UTC).isoformat(timespec="seconds")
    return source_of(place, "guidellm", runs, measured)


def _run(benchmark: Mapping[str, Any], version: str) -> Run:
    totals = at(benchmark, "metrics", "request_totals")
    successful = finite(totals, "successful")
    listed = at(benchmark, "requests", "successful")
    requests = Requests.of([_request(each) for each in listed]) if isinstance(listed, list) and listed else None
    notices: tuple[Notice, ...] = ()
    if requests is not None and successful is not None and len(listed) < successful:
        kept = f"the file keeps {len(listed)} of {successful:.0f} requests: figures are of these"
        notices = (Notice("sampled-requests", kept, float(len(listed))),)
    return Run(
        guidellm_of(version, requests=requests is not None),
        version=version,
        model=text(benchmark, "config", "backend", "model") or text(benchmark, "benchmarker", "backend", "model"),
        load=_load(at(benchmark, "config", "strategy") or at(benchmark, "scheduler", "strategy")),
        requests=requests,
        summary={} if requests is not None else _summary(benchmark),
        successful=None if successful is None else int(successful),
        failed=int((finite(totals, "errored") or 0) + (finite(totals, "incomplete") or 0)),
        input_tokens=finite(benchmark, "metrics", "prompt_token_count", "successful", "mean"),
        output_tokens=finite(benchmark, "metrics", "output_token_count", "successful", "mean"),
        notices=notices,
    )


def _request(entry: Any) -> Request:
    """Return a request from its timestamps; the definitions are then ours, whatever the version computes."""
    timings = at(entry, "info", "timings")
    start, end = number(timings, "request_start"), number(timings, "request_end")
    first, last = number(timings, "first_token_iteration"), number(timings, "last_token_iteration")
    if first is None:  # until 0.5
        first, last = number(timings, "first_iteration"), number(timings, "last_iteration")
    tokens = finite(entry, "output_tokens")
    count = None if tokens is None else int(tokens)
    if start is None or end is None:
        return Request(None, float("nan"))
    ttft_s = None if first is None else first - start
    until_last_s = None if last is None else last - start
    tpot_s = None if until_last_s is None else per_token(until_last_s, ttft_s, count)
    return Request(start, end - start, ttft_s, tpot_s, count)


def _summary(benchmark: Mapping[str, Any]) -> dict[str, float | None]:
    def percentiles(series: str, name: str, per_ms: float) -> dict[str, float | None]:
        values = at(benchmark, "metrics", name, "successful", "percentiles")
        return percentiles_ms(series, {f"p{each}": number(values, f"p{each}") for each in (50, 90, 95, 99)}, per_ms)

    return {
        **percentiles(TTFT, "time_to_first_token_ms", 1.0),
        **percentiles("latency", "request_latency", 1e3),
        "throughput": number(benchmark, "metrics", "requests_per_second", "successful", "mean"),
    }


def _load(strategy: Any) -> str:
    kind = text(strategy, "type_")
    if kind == "synchronous":
        return concurrency(1)
    if kind in ("concurrent", "throughput"):
        return concurrency(finite(strategy, "streams") or finite(strategy, "max_concurrency"))
    per_s = finite(strategy, "rate")
    return rate(kind, per_s) if kind and per_s is not None else UNKNOWN
