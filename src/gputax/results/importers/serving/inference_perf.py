"""inference-perf's report directory: `per_request_lifecycle_metrics.json`, and a summary of all or of each stage."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from typing import Any

from gputax.errors import ResultsError
from gputax.plan.token_tools import INFERENCE_PERF
from gputax.plan.tokens import ITL, TPOT, TTFT
from gputax.results.importers.serving.cells import Run, concurrency, percentiles_ms, rate, source_of
from gputax.results.importers.serving.fields import at, document, finite, number, numbers, text
from gputax.results.importers.serving.requests import Request, Requests, per_token
from gputax.results.importers.source import UNKNOWN, Place, Source
from gputax.results.reading import parse_json

REQUESTS_NAME = "per_request_lifecycle_metrics.json"
SUMMARY_NAME = "summary_lifecycle_metrics.json"
_STAGE = re.compile(r"stage_\d+_lifecycle_metrics\.json")
_LATENCIES = ("request_latency", "normalized_time_per_output_token")


def recognises(place: Place) -> bool:
    """Whether these are inference-perf's files: its directory, or one of them."""
    if place.is_directory:
        return any((place.path / name).is_file() for name in (REQUESTS_NAME, SUMMARY_NAME))
    start = place.text.lstrip()[:1]
    if start == "[":
        return '"start_time"' in place.text[:4096] and '"response_metrics"' in place.text
    return start == "{" and place.looks_like_json and _is_summary(document(place))


def _is_summary(data: Any) -> bool:
    return at(data, "load_summary") is not None and at(data, "successes", "latency") is not None


def read(place: Place) -> Source:
    """Read the requests if there are any, else the summary; the load is that of the only stage."""
    if place.is_directory:
        stages = sorted(each for each in place.path.iterdir() if _STAGE.fullmatch(each.name))
        if len(stages) > 1:
            raise ResultsError(
                f"{len(stages)} stages, and their requests are in one file: they are different loads",
                where=place.name,
                next_step=f"name one of them, e.g. {stages[0].name}; or measure one stage per run",
            )
        files = [place.path / REQUESTS_NAME, stages[0] if stages else place.path / SUMMARY_NAME]
        found = [Place(each) if each.is_file() else None for each in files]
    else:
        found = [place, None] if place.text.lstrip().startswith("[") else [None, place]
    requests, summary = found
    data = summary.data if summary is not None else {}
    listed, failed = _requests(requests) if requests is not None else (None, 0)
    count = finite(data, "successes", "count")
    run = Run(
        INFERENCE_PERF,
        model=_model(requests),
        load=_load(data),
        requests=listed,
        summary=_summary(data),
        successful=None if count is None else int(count),
        failed=failed or int(finite(data, "failures", "count") or 0),
        input_tokens=finite(data, "successes", "prompt_tokens", "mean"),
        output_tokens=finite(data, "successes", "output_len", "mean"),
    )
    return source_of(place, "inference-perf", (run,))


def _entries(place: Place) -> list[Any]:
    data = parse_json(place.text, place.name)
    return data if isinstance(data, list) else []


def _requests(place: Place) -> tuple[Requests, int]:
    entries = _entries(place)
    good = [each for each in entries if at(each, "error") is None]
    return Requests.of([_request(each) for each in good]), len(entries) - len(good)


def _request(entry: Any) -> Request:
    start, end = number(entry, "start_time"), number(entry, "end_time")
    if start is None or end is None:
        return Request(None, math.nan)
    times = numbers(entry, "info", "response_metrics", "output_token_times")
    tokens = finite(entry, "info", "response_metrics", "output_tokens")
    count = None if tokens is None else int(tokens)
    if len(times) < 2:
        return Request(start, end - start, tokens=count)
    gaps_s = tuple(later - earlier for earlier, later in itertools.pairwise(times))
    tpot_s = per_token(times[-1] - start, times[0] - start, count)
    return Request(start, end - start, times[0] - start, tpot_s, count, gaps_s)


def _summary(data: Mapping[str, Any]) -> dict[str, float | None]:
    def percentiles(series: str, name: str) -> dict[str, float | None]:
        values = at(data, "successes", "latency", name)
        known = {f"p{each}": number(values, f"p{each}") for each in (90, 95, 99)}
        return percentiles_ms(series, {"p50": number(values, "median"), **known}, 1e3)

    return {
        **percentiles(TTFT, "time_to_first_token"),
        **percentiles(TPOT, "time_per_output_token"),
        **percentiles(ITL, "inter_token_latency"),
        **percentiles("latency", "request_latency"),
        "throughput": number(data, "successes", "throughput", "requests_per_sec"),
        "tokens_per_s": number(data, "successes", "throughput", "output_tokens_per_sec"),
    }


def _model(place: Place | None) -> str:
    """Return the model that the requests ask for; the summary does not name it."""
    for entry in _entries(place)[:1] if place is not None else ():
        found = re.search(r'"model":\s*"([^"]{1,200})"', text(entry, "request"))
        return found[1] if found else ""
    return ""


def _load(data: Mapping[str, Any]) -> str:
    load = at(data, "load_summary")
    count = finite(load, "concurrency")
    if count is not None:
        return concurrency(count)
    per_s = finite(load, "requested_rate")
    return UNKNOWN if per_s is None else rate("rate", per_s)
