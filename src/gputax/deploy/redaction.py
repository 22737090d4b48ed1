"""Keep what looks like a token out of logs, states and messages."""

from __future__ import annotations

import re

# Google access tokens, bearer headers, JSON web tokens, passwords in arguments: what a cloud's tools could print.
_SECRETS = re.compile(r"ya29\.[\w.-]+|(?<=Bearer )\S+|eyJ[\w-]+\.[\w-]+\.[\w-]+|(?<=password=)\S+", re.IGNORECASE)


def redacted(text: str) -> str:
    """Return the text without anything that looks like a token."""
    return _SECRETS.sub("(removed)", text)
