"""llm-d's benchmark report (YAML or JSON): figures of another tool under common names, so the tool defines them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gputax.errors import ResultsError
from gputax.plan.notices import Notice
from gputax.plan.token_tools import AIPERF, GUIDELLM_SUMMARY, INFERENCE_PERF, VLLM_BENCH, Tool, guidellm_of
from gputax.plan.tokens import TTFT
from gputax.results.importers.serving.cells import Run, concurrency, percentiles_ms, rate, source_of
from gputax.results.importers.serving.fields import at, document, finite, number, text
from gputax.results.importers.source import UNKNOWN, Place, Source

LARGEST_YAML_CHARACTERS = 4_000_000
_LOOKS = re.compile(r"^(?:version:\s*['\"]?\d|(?:scenario|results|metrics|run):\s*$)", re.MULTILINE)
_VERSIONS = ("0.1", "0.2")
_MS = {"s": 1e3, "ms": 1.0, "us": 1e-3, "s/token": 1e3, "ms/token": 1.0}
_TOOLS: dict[str, Tool] = {
    "inference-perf": INFERENCE_PERF,
    "guidellm": GUIDELLM_SUMMARY,
    "vllm-benchmark": VLLM_BENCH,
    "aiperf": AIPERF,
}
# What the report's keys hold, as its converters fill them: the value that the tool has under that name.
_KEYS = {"time_per_output_token": "TPOT", "inter_token_latency": "ITL"}


def recognises(place: Place) -> bool:
    """Whether the file has the version and the latencies of a benchmark report."""
    if place.is_directory:
        return False
    if place.looks_like_json:
        return _latencies(document(place)) is not None
    head = place.text[:4096]
    return len(set(_LOOKS.findall(head))) >= 2 and "time_to_first_token:" in place.text


def _data(place: Place) -> Any:
    if place.looks_like_json:
        return place.data
    if len(place.text) > LARGEST_YAML_CHARACTERS:
        raise ResultsError(f"YAML larger than {LARGEST_YAML_CHARACTERS // 1_000_000} MB", where=place.name)
    import yaml

    try:
        return yaml.safe_load(place.text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ResultsError(
            "invalid YAML",
            where=place.name,
            next_step="the file was truncated or edited: copy it again",
        ) from error


def _latencies(data: Any) -> Any:
    found = at(data, "results", "request_performance", "aggregate", "latency")  # 0.2
    if found is None and at(data, "scenario") is not None:
        found = at(data, "metrics", "latency")  # 0.1
    return found if isinstance(found, Mapping) else None


def read(place: Place) -> Source:
    """Read the figures of the tool that the report names."""
    data = _data(place)
    version = str(at(data, "version") or "")
    if not version.startswith(_VERSIONS):
        raise ResultsError(
            f"a benchmark report of version {version or 'unknown'}; gputax reads {' and '.join(_VERSIONS)}",
            where=place.name,
            next_step="upgrade gputax, or compare the file of the tool that measured it",
        )
    latencies = _latencies(data)
    if latencies is None:
        raise ResultsError("a benchmark report without latencies of requests", where=place.name)
    tool, tool_version = _tool(data, place)
    aggregate = at(data, "results", "request_performance", "aggregate") or at(data, "metrics")
    total, failures = finite(aggregate, "requests", "total"), finite(aggregate, "requests", "failures") or 0.0
    if total is None:
        raise ResultsError(
            "a benchmark report that does not say how many requests it summarises",
            where=place.name,
            next_step="without their number no percentile can be trusted: compare the file of the tool itself",
        )
    run = Run(
        replace(tool, title=f"{tool.title} in an llm-d report"),
        version=tool_version,
        model=text(data, "scenario", "model", "name") or _model(data),
        load=_load(data),
        summary=_summary(aggregate, latencies, tool),
        successful=int(total - failures),
        failed=int(failures),
        input_tokens=finite(aggregate, "requests", "input_length", "mean"),
        output_tokens=finite(aggregate, "requests", "output_length", "mean"),
        notices=(Notice("definitions", f"an llm-d report keeps the names of its tool: {tool.title} defines them"),),
    )
    return source_of(place, "llm-d-report", (run,), _start(data))


def _tool(data: Any, place: Place) -> tuple[Tool, str]:
    load = at(data, "scenario", "load")
    name = text(load, "standardized", "tool") or text(load, "name")
    if not name and text(data, "run", "uid").startswith("inference-perf"):
        name = "inference-perf"  # its own reports name it only there
    if name not in _TOOLS:
        raise ResultsError(
            f"a benchmark report of {name or 'a tool that it does not name'}: what its TPOT and ITL count is not known",
            where=place.name,
            next_step=f"known: {', '.join(_TOOLS)}; compare the file of the tool itself",
        )
    version = text(load, "standardized", "tool_version")
    return (guidellm_of(version, requests=False) if name == "guidellm" else _TOOLS[name]), version


def _summary(aggregate: Any, latencies: Mapping[str, Any], tool: Tool) -> dict[str, float | None]:
    def percentiles(series: str, name: str) -> dict[str, float | None]:
        per_ms = _MS.get(text(latencies, name, "units"))
        values = {f"p{each}": number(latencies, name, f"p{each}") for each in (50, 90, 95, 99)}
        return {} if per_ms is None else percentiles_ms(series, values, per_ms)

    found = {**percentiles(TTFT, "time_to_first_token"), **percentiles("latency", "request_latency")}
    for key, called in _KEYS.items():
        for name in tool.names:
            if name.called == called and name.is_series:
                found |= percentiles(name.is_series, key)
    throughput = at(aggregate, "throughput")
    found["throughput"] = number(throughput, "request_rate", "mean") or number(throughput, "requests_per_sec")
    found["tokens_per_s"] = number(throughput, "output_token_rate", "mean") or number(
        throughput, "output_tokens_per_sec"
    )
    return found


def _model(data: Any) -> str:
    stack = at(data, "scenario", "stack")
    names = {text(each, "standardized", "model", "name") for each in stack} if isinstance(stack, list) else set()
    return names.pop() if len(names - {""}) == 1 and "" not in names else ""


def _load(data: Any) -> str:
    load = at(data, "scenario", "load", "standardized")
    per_s, count = finite(load, "rate_qps"), finite(load, "concurrency")
    if per_s is None:
        return UNKNOWN if count is None else concurrency(count)
    return rate("rate", per_s) if count is None else UNKNOWN


def _start(data: Any) -> str:
    found = at(data, "run", "time", "start")
    return found if isinstance(found, str) else found.isoformat() if hasattr(found, "isoformat") else ""
