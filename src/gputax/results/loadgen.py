"""Read LoadGen's detail log: its verdict, its figures and its settings."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from gputax.errors import ResultsError

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
