"""Read LoadGen's summary, for runs of which nothing else was kept: its verdict, figures and settings."""

from __future__ import annotations

import re

from gputax.errors import ResultsError
from gputax.results.loadgen import LoadGenLog

TITLE = "MLPerf Results Summary"
# Label of the summary -> key of the detail log, so that both are read by one function.
_NUMBERS: dict[str, str] = {
    "Completed samples per second": "result_completed_samples_per_sec",
    "Scheduled samples per second": "result_scheduled_samples_per_sec",
    "Samples per second": "result_samples_per_second",
    "QPS w/ loadgen overhead": "result_qps_with_loadgen_overhead",
    "Min latency (ns)": "result_min_latency_ns",
    "Max latency (ns)": "result_max_latency_ns",
    "Mean latency (ns)": "result_mean_latency_ns",
    "samples_per_query": "effective_samples_per_query",
    "target_qps": "effective_target_qps",
    "target_latency (ns)": "effective_target_latency_ns",
}
_PERCENTILE = re.compile(r"(\d\d\.\d\d) percentile latency \(ns\)")
_LINE = re.compile(r"\s*(.+?)\s*:\s*(.*?)\s*$")
_ERRORS = re.compile(r"(\d+) ERRORS? encountered")


def parse_summaries(text: str, where: str) -> tuple[LoadGenLog, ...]:
    """Parse every summary in the text (a log may hold one per scenario)."""
    parts = text.split(TITLE)[1:]
    if not parts:
        raise ResultsError("no LoadGen summary", where=where)
    return tuple(parse_summary(part, where) for part in parts)


def parse_summary(text: str, where: str = "mlperf_log_summary.txt") -> LoadGenLog:
    """Parse one summary; one that was cut short or is of an accuracy run is an error that says so."""
    values: dict[str, object] = {}
    metrics: dict[str, float] = {}
    reasons: list[str] = []
    for line in text.splitlines():
        if line.startswith(" * "):
            reasons.append(line.removeprefix(" * ").strip())
        found = _LINE.match(line)
        if not found:
            continue
        label, value = found[1], found[2]
        percentile = _PERCENTILE.fullmatch(label)
        key = f"result_{percentile[1]}_percentile_latency_ns" if percentile else _NUMBERS.get(label)
        if label == "Scenario":
            values["effective_scenario"] = value
        elif label == "Result is":
            values["result_validity"] = value
        elif key and (number := _number(value)) is not None:
            values[key] = number
            if key.startswith("result_"):
                metrics[key] = number
    if "result_validity" not in values:
        raise ResultsError(
            "the LoadGen summary has no result",
            where=where,
            next_step="the run was cut short or was an accuracy run: run it again",
        )
    valid = values["result_validity"] == "VALID"
    errors = _ERRORS.search(text)
    return LoadGenLog(
        values=values,
        valid=valid,
        # A valid run lists how early stopping went behind the same bullets.
        invalid_reasons=() if valid else tuple(reasons),
        metrics=metrics,
        errors=int(errors[1]) if errors else 0,
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
