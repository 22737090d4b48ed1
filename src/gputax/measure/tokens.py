"""The token figures of one load, from the columns of its requests; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gputax.plan.notices import Notice
from gputax.plan.tokens import ITL, TOKENS, TPOT, TTFT
from gputax.results.columns import Columns, succeeded
from gputax.results.token_series import has_tokens, token_series
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
