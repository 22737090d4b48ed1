"""When each token was there: one row for each row of the recording, as many columns as a request has tokens."""

from __future__ import annotations

import numpy as np

from gputax.plan.tokens import FIRST_TOKEN, LAST_TOKEN, TOKEN_QUERY, TOKEN_TIME, TOKENS
from gputax.worker.engines.engine import Engine, Generates
from gputax.worker.loads.recording import Int64Array

FIRST_ROWS = 4096


class TokenTimes:
    """Kept beside a recording while an engine that generates tokens runs; copying one row costs half a microsecond."""

    __slots__ = ("_engine", "_rows")

    def __init__(self, engine: Generates) -> None:
        self._engine = engine
        self._rows = np.zeros((FIRST_ROWS, engine.tokens), dtype=np.int64)

    def add(self, row: int, count: int = 1) -> None:
        """Keep the times of the engine's last run for `count` rows of the recording."""
        while row + count > len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._rows[row : row + count] = self._engine.token_ns

    def to_columns(self, samples: Int64Array) -> dict[str, Int64Array]:
        """Return the columns of tokens for a recording whose rows have so many samples."""
        times = self._rows[: len(samples)]
        per_sample = times.shape[1]
        return {
            FIRST_TOKEN: times[:, 0].copy(),
            LAST_TOKEN: times[:, -1].copy(),
            TOKENS: samples * per_sample,
            TOKEN_QUERY: np.repeat(np.arange(len(times), dtype=np.int64), per_sample),
            TOKEN_TIME: times.reshape(-1).copy(),
        }


def token_times_for(engine: Engine) -> TokenTimes | None:
    """Return where the times of the engine's tokens go; None for an engine without tokens."""
    return TokenTimes(engine) if isinstance(engine, Generates) else None
