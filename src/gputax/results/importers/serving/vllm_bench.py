"""The JSON file of `vllm bench serve --save-result`; with `--save-detailed` it has every request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputax.errors import ResultsError
from gputax.plan.token_tools import VLLM_BENCH
from gputax.plan.tokens import ITL, TPOT, TTFT
from gputax.results.importers.serving.cells import Run, concurrency, percentiles_ms, rate, source_of
from gputax.results.importers.serving.fields import at, document, first_line, number, numbers, text
from gputax.results.importers.serving.requests import Request, Requests, per_token
from gputax.results.importers.source import UNKNOWN, Place, Source

KEYS = ("backend", "model_id", "request_throughput", "duration")


def recognises(place: Place) -> bool:
    """Whether the file has the keys that every version writes."""
    return not place.is_directory and place.looks_like_json and _is_result(document(place))


def _is_result(data: Any) -> bool:
    return isinstance(data, Mapping) and all(key in data for key in KEYS)


def read(place: Place) -> Source:
    """Read the one result of the file."""
    data = document(place)
    if len(place.text.strip().splitlines()) > 1 and first_line(place) is not None:
        raise ResultsError(
            "several results in one file (--append-result): which of them is meant is not clear",
            where=place.name,
            next_step="write one line of it to a file of its own",
        )
    if "request_throughput" in data and "total_output_tokens" not in data:
        raise ResultsError(
            "a result of vllm bench without output tokens, e.g. of a pooling model",
            where=place.name,
            next_step="gputax reads the results of models that generate text",
        )
    requests = _requests(data)
    completed = number(data, "completed")
    run = Run(
        VLLM_BENCH,
        model=text(data, "model_id"),
        load=_load(data),
        requests=requests,
        summary=_summary(data),
        successful=None if completed is None else int(completed),
        failed=int(number(data, "failed") or 0),
        input_tokens=_each(data, "total_input_tokens"),
        output_tokens=_each(data, "total_output_tokens"),
        # Gaps are counted by tokens, as far as one chunk is one token.
        counts={ITL: int(number(data, "total_output_tokens") or 0) - int(completed or 0)},
    )
    return source_of(place, "vllm-bench", (run,), _stamp(text(data, "date")))


def _requests(data: Mapping[str, Any]) -> Requests | None:
    ttfts, tokens, itls = numbers(data, "ttfts"), numbers(data, "output_lens"), at(data, "itls")
    if not ttfts or not isinstance(itls, list) or not len(ttfts) == len(itls) == len(tokens):
        return None
    starts = numbers(data, "start_times")
    errors = at(data, "errors")
    found = []
    for index, ttft_s in enumerate(ttfts):
        if isinstance(errors, list) and index < len(errors) and errors[index]:
            continue
        gaps_s = numbers({"gaps": itls[index]}, "gaps")
        latency_s = ttft_s + sum(gaps_s)
        start_s = starts[index] if len(starts) == len(ttfts) else None
        count = int(tokens[index]) if tokens[index] == tokens[index] else None
        found.append(Request(start_s, latency_s, ttft_s, per_token(latency_s, ttft_s, count), count, gaps_s))
    return Requests.of(found)


def _summary(data: Mapping[str, Any]) -> dict[str, float | None]:
    def percentiles(name: str) -> dict[str, float | None]:
        known = {f"p{percent}": number(data, f"p{percent}_{name}_ms") for percent in (50, 90, 95, 99)}
        return known | ({} if known["p50"] is not None else {"p50": number(data, f"median_{name}_ms")})

    return {
        **percentiles_ms(TTFT, percentiles("ttft"), 1.0),
        **percentiles_ms(TPOT, percentiles("tpot"), 1.0),
        **percentiles_ms(ITL, percentiles("itl"), 1.0),
        **percentiles_ms("latency", percentiles("e2el"), 1.0),
        "latency_mean": number(data, "mean_e2el_ms"),
        "throughput": number(data, "request_throughput"),
        "tokens_per_s": number(data, "output_throughput"),
    }


def _each(data: Mapping[str, Any], total: str) -> float | None:
    count, completed = number(data, total), number(data, "completed")
    return None if count is None or not completed else count / completed


def _load(data: Mapping[str, Any]) -> str:
    per_s, most = number(data, "request_rate"), number(data, "max_concurrency")
    if per_s is None:
        return concurrency(most) if most else "all at once"
    if most is not None or at(data, "ramp_up_strategy"):
        return UNKNOWN  # a rate with a limit is neither an open nor a closed loop
    return rate("poisson" if number(data, "burstiness") in (None, 1.0) else "gamma", per_s)


def _stamp(date: str) -> str:
    """Return `20261117-152033` in ISO 8601; the file does not say in which time zone."""
    if len(date) != 15 or not (date[:8] + date[9:]).isdigit():
        return ""
    day, clock = date[:8], date[9:]
    return f"{day[:4]}-{day[4:6]}-{day[6:]}T{clock[:2]}:{clock[2:4]}:{clock[4:]}"
