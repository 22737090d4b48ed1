"""The report directory of mlcommons/endpoints: `result_summary.json` has its figures, `events.jsonl` its times."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from gputax.plan.token_tools import MLPERF_ENDPOINTS
from gputax.plan.tokens import TPOT, TTFT
from gputax.results.importers.serving.cells import Run, concurrency, percentiles_ms, rate, source_of
from gputax.results.importers.serving.fields import at, document, finite, first_line, json_lines, number, text
from gputax.results.importers.serving.requests import Request, Requests
from gputax.results.importers.source import UNKNOWN, Place, Source

SUMMARY_NAME = "result_summary.json"
EVENTS_NAME = "events.jsonl"
# Where the versions put it.
_SUMMARIES = (f"performance/{SUMMARY_NAME}", SUMMARY_NAME)
_KEYS = ("n_samples_issued", "n_samples_completed", "ttft", "tpot")


def recognises(place: Place) -> bool:
    """Whether this is the tool's report directory, or one of the two files."""
    if place.is_directory:
        events = place.path / EVENTS_NAME  # our own runs have a file of this name too
        by_events = events.is_file() and _is_event(first_line(Place(events)))
        return by_events or any((place.path / name).is_file() for name in _SUMMARIES)
    if not place.looks_like_json:
        return False
    first = first_line(place)
    return _is_event(first) or _is_summary(document(place))


def _is_event(data: Any) -> bool:
    return isinstance(at(data, "event_type"), str) and isinstance(at(data, "timestamp_ns"), int)


def _is_summary(data: Any) -> bool:
    return isinstance(data, Mapping) and all(key in data for key in _KEYS)


def read(place: Place) -> Source:
    """Read the times of the events, and the figures that need a tokenizer from the summary."""
    events: Place | None
    summary: Place | None
    if place.is_directory:
        here = [place.path / name for name in _SUMMARIES if (place.path / name).is_file()]
        summary = Place(here[0]) if here else None
        events = Place(place.path / EVENTS_NAME) if (place.path / EVENTS_NAME).is_file() else None
    else:
        events, summary = (place, None) if _is_event(first_line(place)) else (None, place)
    data = summary.data if summary is not None else {}
    completed = finite(data, "n_samples_completed")
    complete = at(data, "complete") is not False
    run = Run(
        MLPERF_ENDPOINTS,
        version=text(data, "version"),
        model=text(data, "run_config", "model"),
        load=_load(at(data, "run_config", "load_pattern")),
        requests=_requests(events) if events is not None else None,
        summary=_summary(data),
        successful=None if completed is None else int(completed),
        failed=int(finite(data, "n_samples_failed") or 0),
        output_tokens=finite(data, "output_sequence_lengths", "avg"),
        invalid=() if complete else ("the run was interrupted, or its figures are not complete",),
    )
    return source_of(place, "mlperf-endpoints", (run,))


def _requests(place: Place) -> Requests:
    """Return the samples that were issued while the performance was tracked, as the tool itself counts them."""
    issued: dict[str, int] = {}
    chunks: dict[str, list[int]] = {}
    found: list[Request] = []
    tracked = False
    for event in json_lines(place):
        kind, at_ns, name = at(event, "event_type"), at(event, "timestamp_ns"), str(at(event, "sample_uuid") or "")
        if kind in ("session.start_performance_tracking", "session.stop_performance_tracking"):
            tracked = kind == "session.start_performance_tracking"
        elif not isinstance(at_ns, int) or not name:
            continue
        elif kind == "sample.issued" and tracked:
            issued[name] = at_ns
        elif kind in ("sample.recv_first", "sample.recv_non_first") and name in issued:
            chunks.setdefault(name, []).append(at_ns)
        elif kind == "sample.complete" and name in issued:
            found.append(_request(issued.pop(name), chunks.pop(name, []), at_ns))
    return Requests.of(found)


def _request(issued_ns: int, chunks_ns: list[int], complete_ns: int) -> Request:
    gaps_s = tuple((later - earlier) / 1e9 for earlier, later in itertools.pairwise(chunks_ns))
    ttft_s = (chunks_ns[0] - issued_ns) / 1e9 if chunks_ns else None
    # Its tokens are counted with the model's tokenizer, which is not here: the time per token is the summary's.
    return Request(issued_ns / 1e9, (complete_ns - issued_ns) / 1e9, ttft_s, gaps_s=gaps_s)


def _summary(data: Mapping[str, Any]) -> dict[str, float | None]:
    def percentiles(series: str, name: str) -> dict[str, float | None]:
        values = at(data, name, "percentiles")
        known = {
            f"p{each}": number(values, each) if number(values, each) is not None else number(values, f"{each}.0")
            for each in ("50", "90", "95", "99")
        }
        return percentiles_ms(series, known, 1e-6)

    return {
        **percentiles(TTFT, "ttft"),
        **percentiles(TPOT, "tpot"),
        **percentiles("latency", "latency"),
        "throughput": number(data, "qps"),
        "tokens_per_s": number(data, "tps"),
    }


def _load(pattern: Any) -> str:
    kind = text(pattern, "type")
    per_s, count = finite(pattern, "target_qps"), finite(pattern, "target_concurrency")
    if kind == "poisson" and per_s is not None:
        return rate(kind, per_s)
    if kind == "concurrency":
        return concurrency(count)
    return "all at once" if kind == "max_throughput" else UNKNOWN
