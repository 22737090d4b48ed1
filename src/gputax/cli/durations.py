"""Parse times such as 2h, 90m or 45s."""

from __future__ import annotations

import re

from gputax.errors import UsageError

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str, option: str, example: str = "2h, or 90m") -> float:
    """Return the seconds of `2h`, `90m`, `1h30m`, `45s` or a plain number of seconds."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise UsageError(f"{option} {text!r} is no time", next_step=f"e.g. {option} {example}")
    return sum(float(number) * _UNITS_S[unit or "s"] for number, unit in parts)
