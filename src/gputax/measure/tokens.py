"""The token figures of one load, from the columns of its requests; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax.measure.columns import Columns, begin_column, succeeded
from gputax.plan.notices import Notice
from gputax.plan.tokens import ITL, REQUEST_COLUMNS, TOKEN_QUERY, TOKEN_TIME, TOKENS, TPOT, TTFT
from gputax.stats.percentiles import percentile_table

PERCENTILES = {TTFT: (0.50, 0.90, 0.99), TPOT: (0.50, 0.90, 0.99), ITL: (0.50, 0.99)}


@dataclass(frozen=True)
class TokenFigures:
    """The token figures of one load; a percentile is None if there are too few values."""

    tokens: int
    tokens_per_s: float
    ns: dict[str, dict[str, float | None]]
    """By series and percentile: `ns["ttft"]["p90"]`."""
    notices: tuple[Notice, ...]

    def record(self) -> dict[str, Any]:
        """Return the figures by their keys in the record."""
        times = {
            f"{series}_{name}_ms": None if value is None else value / 1e6
            for series, values in self.ns.items()
            for name, value in values.items()
        }
        return {"tokens": self.tokens, "tokens_per_sec": self.tokens_per_s, **times}


def has_tokens(columns: Columns) -> bool:
    """Whether the load recorded tokens."""
    return all(name in columns for name in REQUEST_COLUMNS)


def token_series(scenario: str, columns: Columns) -> dict[str, npt.NDArray[np.float64]]:
    """Return the values of ttft (per request), tpot (per request of two tokens or more) and itl (per gap), in ns.

    Requests that failed or brought no token have none of them; a load without tokens has no series.
    """
    if not has_tokens(columns):
        return {}
    good = succeeded(columns) & (columns[TOKENS] > 0)
    first, last, tokens = (columns[name] for name in REQUEST_COLUMNS)
    # A run of a batch is one row: its requests get their tokens in step, so its times are those of each of them.
    tokens = tokens // np.maximum(columns.get("samples", np.ones_like(tokens)), 1)
    several = good & (tokens > 1)
    return {
        TTFT: (first - columns[begin_column(scenario)])[good].astype(np.float64),
        # All tokens may come in one read: that is a time of about zero, and leaving it out would be a bias.
        TPOT: np.maximum((last - first)[several], 1) / (tokens[several] - 1.0),
        ITL: gaps_ns(columns, good),
    }


def gaps_ns(columns: Columns, good: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Return the time between consecutive tokens or chunks of each request that is `good`."""
    if TOKEN_TIME not in columns:
        return np.empty(0)
    queries, times = columns[TOKEN_QUERY], columns[TOKEN_TIME]
    order = np.lexsort((times, queries))  # streams interleave
    queries, times = queries[order], times[order]
    same = (queries[1:] == queries[:-1]) & good[queries[1:]]
    # What one read brought was there at one moment; the statistics take logarithms.
    gaps: npt.NDArray[np.int64] = np.diff(times)[same]
    return np.maximum(gaps, 1).astype(np.float64)


def token_figures(scenario: str, columns: Columns, duration_s: float) -> TokenFigures | None:
    """Return the token figures of a load; None if it recorded no tokens."""
    if not has_tokens(columns):
        return None
    found: dict[str, dict[str, float | None]] = {}
    notices = []
    for name, values in token_series(scenario, columns).items():
        wanted = PERCENTILES[name]
        found[name] = {f"p{100 * p:g}": None for p in wanted}
        if values.size == 0:
            continue
        table = percentile_table(values, wanted)
        for row in table.rows:
            found[name][f"p{100 * row.p:g}"] = row.value_ns
            if row.value_ns is None:
                text = f"{name} p{100 * row.p:g} needs {row.floor} values; there are {table.count}, so it is omitted"
                notices.append(Notice("too-few-samples", text, float(table.count)))
    total = int(columns[TOKENS][succeeded(columns)].sum())
    return TokenFigures(total, total / duration_s if duration_s > 0 else 0.0, found, tuple(notices))
