"""LoadGen's own output as a source: its detail log first, with verdict, figures and settings, else the summary."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from gputax.errors import ResultsError
from gputax.plan.cells import MULTI_STREAM_SAMPLES_PER_QUERY
from gputax.plan.comparability import Value
from gputax.plan.metrics import METRICS, OVER_BOUND_SHARE
from gputax.plan.token_tools import SCHEDULED, SENT, Meant
from gputax.plan.tokens import LATENCY
from gputax.results.documents.run import RECORD_NAME
from gputax.results.importers.source import UNKNOWN, Findings, Place, Source, SourceCell, label_of, scenario_named
from gputax.stats.percentiles import floor_for
from gputax.text import printable

PREFIX = ":::MLLOG "


@dataclass(frozen=True)
class LoadGenLog:
    """The content of a `mlperf_log_detail.txt`."""

    values: dict[str, object]
    valid: bool
    invalid_reasons: tuple[str, ...]
    metrics: dict[str, float] = field(default_factory=dict)
    version: str | None = None
    errors: int = 0

    def percentile_ns(self, percent: str) -> float | None:
        """Return one of LoadGen's own percentiles, e.g. `90.00`."""
        return self.metrics.get(f"result_{percent}_percentile_latency_ns")


def parse_detail(text: str, where: str = "mlperf_log_detail.txt") -> LoadGenLog:
    """Parse the whole log; a log without a result is an error."""
    values: dict[str, object] = {}
    reasons: list[str] = []
    errors = 0
    for line in text.splitlines():
        if not line.startswith(PREFIX):
            continue
        try:
            entry = json.loads(line[len(PREFIX) :])
            key, value, metadata = str(entry["key"]), entry["value"], entry.get("metadata", {})
        except (ValueError, KeyError, TypeError):
            continue  # a line truncated by a full disk or a kill; detected below by the missing result
        if key == "result_invalid_reason":
            reasons.append(str(value))
        errors += bool(metadata.get("is_error"))
        values[key] = value
    if "result_validity" not in values:
        raise ResultsError(
            "the LoadGen log has no result",
            where=where,
            next_step="the run was interrupted or was an accuracy run: run it again",
        )
    # Booleans are flags of the verdict; only real figures belong among the metrics.
    metrics = {
        key: float(value)
        for key, value in values.items()
        if key.startswith(("result_", "early_stopping_latency")) and isinstance(value, int | float)
        and not isinstance(value, bool)
    }  # fmt: skip
    return LoadGenLog(
        values=values,
        valid=values["result_validity"] == "VALID",
        invalid_reasons=tuple(reasons),
        metrics=metrics,
        version=str(values["loadgen_version"]) if "loadgen_version" in values else None,
        errors=errors,
    )


DETAIL_NAME = "mlperf_log_detail.txt"
SUMMARY_NAME = "mlperf_log_summary.txt"
CLAIM = "as LoadGen logged it; the log names neither model nor device"
_THROUGHPUT = {
    "offline": "result_samples_per_second",
    "server": "result_completed_samples_per_sec",
    "single-stream": "result_qps_with_loadgen_overhead",
}


def recognises(place: Place) -> bool:
    """Whether these are LoadGen's files, or a log that contains their text."""
    if place.is_directory:
        logs = any((place.path / name).is_file() for name in (DETAIL_NAME, SUMMARY_NAME))
        return logs and not (place.path / RECORD_NAME).is_file()
    return _is_detail(place) or any(line.strip() == TITLE for line in place.plain_text.splitlines())


def read(place: Place) -> Source:
    """Read the run or runs that LoadGen logged."""
    detail, summary = place.path / DETAIL_NAME, place.path / SUMMARY_NAME
    logs: tuple[LoadGenLog, ...]
    if place.is_directory and detail.is_file():
        logs = (parse_detail(Place(detail).text, str(detail)),)
    elif place.is_directory:
        logs = parse_summaries(Place(summary).text, str(summary))
    elif _is_detail(place):
        logs = (parse_detail(place.plain_text, place.name),)
    else:
        logs = parse_summaries(place.plain_text, place.name)
    return Source(
        path=place.name,
        format="loadgen",
        label=label_of(place.path),
        cells=tuple(_cell(log) for log in logs),
    )


def _is_detail(place: Place) -> bool:
    return any(line.startswith(PREFIX) for line in place.plain_text.splitlines())


def _cell(log: LoadGenLog) -> SourceCell:
    scenario = scenario_named(str(log.values.get("effective_scenario", UNKNOWN)))
    findings = Findings()
    _add_metrics(findings, scenario, log)
    if log.errors:
        findings.tell("loadgen-errors", f"LoadGen logged {log.errors} errors")
    batch = {"single-stream": 1, "multi-stream": MULTI_STREAM_SAMPLES_PER_QUERY}.get(scenario)
    if scenario == "multi-stream" and isinstance(log.values.get("effective_samples_per_query"), int | float):
        batch = int(float(str(log.values["effective_samples_per_query"])))
    return SourceCell(
        scenario=scenario,
        batch_size=batch,
        metrics=findings.metrics,
        conditions=_conditions(scenario, batch, log),
        valid=log.valid,
        invalid_reasons=tuple(printable(reason) for reason in log.invalid_reasons),
        claim=CLAIM,
        notices=tuple(findings.notices),
        meant={} if scenario == UNKNOWN else {LATENCY: Meant(SCHEDULED if scenario == "server" else SENT, "LoadGen")},
    )


def _add_metrics(findings: Findings, scenario: str, log: LoadGenLog) -> None:
    rate = log.metrics.get(_THROUGHPUT.get(scenario, ""))
    if rate is not None:
        findings.add("throughput", rate, "LoadGen")
    if scenario == "offline":
        return  # its latencies are those of the one query with all samples, so they are not usable
    count = log.metrics.get("result_query_count")
    for metric in METRICS.values():
        if metric.percentile is None or metric.series != LATENCY:
            continue
        percent = f"{100 * metric.percentile:.2f}"
        value = log.metrics.get(f"result_{percent}_percentile_per_query_latency_ns", log.percentile_ns(percent))
        floor = floor_for(metric.percentile)
        if value is not None and count is not None and count < floor:
            findings.refuse(metric.name, f"{metric.name} needs {floor} queries, there are {count:.0f}")
        elif value is not None:
            findings.add(metric.name, value / 1e6, "LoadGen")
    mean = log.metrics.get("result_mean_query_latency_ns", log.metrics.get("result_mean_latency_ns"))
    if mean is not None:
        findings.add("latency_mean", mean / 1e6, "LoadGen")
    late = log.metrics.get("result_overlatency_query_count")
    if scenario == "server" and late is not None and count:
        findings.add(OVER_BOUND_SHARE.name, 100.0 * late / count, "LoadGen")


def _conditions(scenario: str, batch: int | None, log: LoadGenLog) -> dict[str, Value]:
    found: dict[str, object] = {
        "scenario": scenario if scenario != UNKNOWN else None,
        "batch_size": batch,
        "counted": "samples",
        "loadgen_version": (log.version or "").split(" ")[0] or None,
    }
    if scenario == "server":
        found["target_qps"] = log.values.get("effective_target_qps")
        bound = log.values.get("effective_target_latency_ns")
        found["latency_bound_ms"] = bound / 1e6 if isinstance(bound, int | float) else None
    if scenario not in ("offline", UNKNOWN):
        found["judged_percentile"] = log.values.get("effective_target_latency_percentile")
    return {name: value for name, value in found.items() if isinstance(value, str | int | float | bool)}


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
    """Parse every summary in the text (a log may contain one per scenario)."""
    parts = text.split(TITLE)[1:]
    if not parts:
        raise ResultsError("no LoadGen summary", where=where)
    return tuple(parse_summary(part, where) for part in parts)


def parse_summary(text: str, where: str = "mlperf_log_summary.txt") -> LoadGenLog:
    """Parse one summary; a truncated summary or one of an accuracy run is an error."""
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
            next_step="the run was interrupted or was an accuracy run: run it again",
        )
    valid = values["result_validity"] == "VALID"
    errors = _ERRORS.search(text)
    return LoadGenLog(
        values=values,
        valid=valid,
        # A valid run lists early-stopping results with the same bullets.
        invalid_reasons=() if valid else tuple(reasons),
        metrics=metrics,
        errors=int(errors[1]) if errors else 0,
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
