"""TTFT, TPOT and the gaps between tokens, from the columns of a load's requests and tokens; pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gputax.plan.tokens import ITL, REQUEST_COLUMNS, TOKEN_QUERY, TOKEN_TIME, TOKENS, TPOT, TTFT
from gputax.results.columns import Columns, begin_column, succeeded


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
