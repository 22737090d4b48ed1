"""Goodput: the requests that succeeded and kept every bound; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gputax.plan.tokens import FIRST_TOKEN, LAST_TOKEN, LATENCY, TOKENS, TPOT, TTFT
from gputax.results.columns import Columns, begin_column, succeeded
from gputax.results.token_series import has_tokens


def goodput_bounds(bound_ms: float, options: Mapping[str, Any]) -> dict[str, float]:
    """Return the bounds that are set, in milliseconds: of the latency, and of tokens by the engine's options."""
    asked = {LATENCY: bound_ms, TTFT: options.get("slo_ttft_ms", 0.0), TPOT: options.get("slo_tpot_ms", 0.0)}
    return {name: float(value) for name, value in asked.items() if value}


def kept_bounds(scenario: str, columns: Columns, bounds_ms: Mapping[str, float]) -> int:
    """Return how many requests succeeded and kept all bounds; one of a single token keeps any bound on TPOT."""
    good = succeeded(columns)
    begin = columns[begin_column(scenario)]
    if LATENCY in bounds_ms:
        good &= columns["end_ns"] - begin <= bounds_ms[LATENCY] * 1e6
    if has_tokens(columns):
        first, last, tokens = columns[FIRST_TOKEN], columns[LAST_TOKEN], columns[TOKENS]
        if TTFT in bounds_ms:
            good &= (first - begin <= bounds_ms[TTFT] * 1e6) & (tokens > 0)
        if TPOT in bounds_ms:
            good &= last - first <= bounds_ms[TPOT] * 1e6 * np.maximum(tokens - 1, 1)
    return int(np.count_nonzero(good))
