"""Token times: the columns in which a load keeps them, and the definitions that every result with tokens states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LATENCY = "latency"
TTFT, TPOT, ITL = "ttft", "tpot", "itl"
TOKEN_SERIES = (TTFT, TPOT, ITL)
"""What tokens add to the latency of a request; a metric names the series that it is a percentile of."""

# Columns with one row per request, beside `end_ns` and `scheduled_ns` or `start_ns`.
FIRST_TOKEN, LAST_TOKEN, TOKENS = "first_token_ns", "last_token_ns", "tokens"
REQUEST_COLUMNS = (FIRST_TOKEN, LAST_TOKEN, TOKENS)
# Columns with one row per token or chunk: the row of its request, and when it was there. They are a table of their own.
TOKEN_QUERY, TOKEN_TIME = "token_query", "token_ns"
TOKEN_COLUMNS = (TOKEN_QUERY, TOKEN_TIME)

ClockStart = Literal["scheduled", "sent"]
Counted = Literal["token", "chunk"]
_START = {"scheduled": "the request's scheduled arrival", "sent": "the moment at which the request was sent"}


@dataclass(frozen=True)
class TokenDefinitions:
    """What TTFT, TPOT and ITL mean in one result: tools use the same names for different things."""

    clock_start: ClockStart
    """What TTFT counts from."""
    counted: Counted
    """What the gaps of ITL are between: single tokens, or chunks of a stream, which may hold several tokens."""
    token_source: str
    """Who counted the tokens of a response: `usage` (the server), `chunks` (one token each is assumed), `engine`."""

    def to_dict(self) -> dict[str, str]:
        """Return the definitions as they are stored: what can be compared, and sentences for people."""
        counted_by = {
            "usage": "tokens as the server counts them (usage.completion_tokens)",
            "chunks": "chunks with content, each taken for one token, because the server did not count them",
        }.get(self.token_source, f"tokens as counted by the {self.token_source}")
        return {
            "clock_start": self.clock_start,
            "counted": self.counted,
            "token_source": self.token_source,
            TTFT: f"from {_START[self.clock_start]} to the first {self.counted} with content",
            TPOT: "(last - first token) / (tokens - 1) of each request: the first token is excluded",
            ITL: f"every gap between two consecutive {self.counted}s of a request",
            "tokens_per_s": f"output tokens of all successful requests over the duration of the load; {counted_by}",
        }
