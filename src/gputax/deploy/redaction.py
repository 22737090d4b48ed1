"""Remove what looks like a secret from the output of programs and pods before it is written or shown; pure."""

from __future__ import annotations

import re

REMOVED = "(removed)"
_NAMES = r"(?:token|passw(?:or)?d|passphrase|secret|(?:api|access|account|private)[_-]?key)"
# Every repetition is bounded, or ends where the next match could begin: a pod's log may be written to take long.
_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, flags), shown)
    for pattern, flags, shown in (
        # A key as a whole; and its lines, because a program's output arrives line by line. 64 hex digits are a digest.
        (
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?:[^-]|-(?!----)){0,20000}+"
            r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----)?",
            0,
            REMOVED,
        ),
        (r"^(?![0-9a-f]{64}$)[A-Za-z0-9+/]{60,76}={0,2}$", re.MULTILINE, REMOVED),
        (r"(authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:basic|bearer|token)\s{1,3})[^\s\"']+", re.IGNORECASE, r"\1"),
        (r"(?<=bearer )[^\s\"']+", re.IGNORECASE, REMOVED),
        # In JSON only a text is a secret: a number in its place would no longer be one afterwards.
        (rf"({_NAMES}\"\s{{0,3}}:\s{{0,3}}\")(?!\(removed)(?:[^\"\\]|\\.)+", re.IGNORECASE, r"\1"),
        (rf"({_NAMES}(?:\s?=\s?|:\s?)[\"']?)(?!\(removed)[^\s\"',;&\\]+", re.IGNORECASE, r"\1"),
        (rf"(--[a-z-]{{0,30}}{_NAMES}\s)(?!\(removed)[^\s\"'-][^\s\"']*", re.IGNORECASE, r"\1"),
        (r"(?<=://)[^\s/:@\"']{0,200}:[^\s/@\"']{1,500}(?=@)", 0, REMOVED),
        (r"ya29\.[\w.-]{1,4000}|(?<![\w-])eyJ[\w-]{1,4000}+\.[\w-]{1,4000}+\.[\w-]{1,4000}", 0, REMOVED),
        (r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{35}", 0, REMOVED),
        (r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_|nvapi-|xox[abprs]-)[\w-]{16,500}", 0, REMOVED),
    )
)


def redacted(text: str) -> str:
    """Return the text with everything that looks like a secret replaced."""
    for pattern, shown in _RULES:
        text = pattern.sub(shown if shown == REMOVED else rf"{shown}{REMOVED}", text)
    return text
