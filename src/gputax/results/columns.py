"""The columns of one load: one row per query or run, and which of them count."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from gputax.plan.tokens import TOKEN_COLUMNS, TOKEN_QUERY

Columns = Mapping[str, npt.NDArray[np.int64]]
STATUS = "status"
"""0 for a request that succeeded, else the number of what went wrong; only loads that can fail have it."""


def begin_column(scenario: str) -> str:
    """Return the column that latency counts from: the scheduled time (server) or the start (all others)."""
    return "scheduled_ns" if scenario == "server" else "start_ns"


def succeeded(columns: Columns) -> npt.NDArray[np.bool_]:
    """Return which rows succeeded; all of them if the load cannot fail."""
    if STATUS not in columns:
        return np.ones(len(columns["end_ns"]), dtype=np.bool_)
    return np.equal(columns[STATUS], 0)


def latencies_ns(scenario: str, columns: Columns) -> npt.NDArray[np.int64]:
    """Return one latency per successful query."""
    latency = columns["end_ns"] - columns[begin_column(scenario)]
    return latency[succeeded(columns)] if STATUS in columns else latency


def without_first(columns: Columns, rows: int) -> Columns:
    """Return the columns without the first rows, and without their tokens."""
    requests, tokens = sample_tables(columns)
    kept = {name: values[rows:] for name, values in requests.items()}
    if TOKEN_QUERY in tokens:
        later = tokens[TOKEN_QUERY] >= rows
        kept |= {name: values[later] for name, values in tokens.items()}
        kept[TOKEN_QUERY] = kept[TOKEN_QUERY] - rows
    return kept


def sample_tables(columns: Columns) -> tuple[Columns, Columns]:
    """Return the columns of the requests, and those of the single tokens, which are more rows."""
    tokens = {name: values for name, values in columns.items() if name in TOKEN_COLUMNS}
    return {name: values for name, values in columns.items() if name not in tokens}, tokens
