"""Numbers, intervals, plurals, times and sizes for display, and sanitising of texts from files."""

from __future__ import annotations

import codecs
import math
import re
import unicodedata
from collections.abc import Sequence
from typing import TextIO

DASH = "–"
MINUS = "−"
Bounds = tuple[float | None, float | None] | None

# Long enough for names and commands; a whole file in place of a name is truncated.
LONGEST_TEXT = 600
LONGEST_NAME = 200
# Control characters break terminals and XML; bidirectional overrides let a name rewrite its line.
UNPRINTABLE = {"Cc", "Cs", "Co", "Cn", "Zl", "Zp"}
BIDIRECTIONAL = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")
# Never a double quote or a backslash: the text may be JSON.
ASCII = {
    "±": "+/-", "µ": "u", "μ": "u", "–": "-", "—": "-", "−": "-", "‑": "-", "×": "x", "…": "...", "≤": "<=",
    "≥": ">=", "≠": "!=", "≈": "~", "∞": "inf", "✓": "+", "✗": "x", "⚠": "!", "→": "->", "·": "|", "•": "*", "°": "",
    "‘": "'", "’": "'", "“": "'", "”": "'", "«": "'", "»": "'", "\u00a0": " ", "\u202f": " ", "\ufffd": "?",
    "─": "-", "━": "-", "│": "|", "┃": "|", "█": "#", "ß": "ss",
}  # fmt: skip
TRANSLITERATE = "gputax-transliterate"
# A command in a sentence: in backticks, or from the program's name to the next comma or "or".
_COMMAND = re.compile(r"`[^`]*`|\b(?:gputax|kubectl|docker|podman|pip|gcloud|sudo) (?:(?! or )[^,;`])+")


def plain(text: str) -> str:
    """Return the text on one line, without characters that a terminal, a browser or an XML parser would interpret."""
    shown = "".join(_printable(character) for character in text[: LONGEST_TEXT + 1])
    shown = re.sub(r" {2,}", " ", shown).strip()
    return shown if len(text) <= LONGEST_TEXT else shown[:LONGEST_TEXT] + "…"


def _printable(character: str) -> str:
    if character in "\t\n\r":
        return " "
    if character in BIDIRECTIONAL or unicodedata.category(character) in UNPRINTABLE:
        return "\ufffd"
    return character


def printable(text: str, longest: int = LONGEST_NAME) -> str:
    """Return a name from a file without control, direction and surrogate characters, and truncated."""
    shown = "".join(character if character.isprintable() else "\ufffd" for character in text)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def to_ascii(text: str) -> str:
    """Return the text in ASCII: known symbols by their replacements, letters without accents, else a question mark."""
    return text if text.isascii() else "".join(_ascii(character) for character in text)


def _ascii(character: str) -> str:
    if character.isascii():
        return character
    if character in ASCII:
        return ASCII[character]
    found = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return found or ("+" if "\u2500" <= character <= "\u257f" else "?")


def shows_unicode(stream: TextIO) -> bool:
    """Whether the symbols that we use can be written to the stream."""
    try:
        "".join(ASCII).encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def never_fails(stream: TextIO) -> None:
    """Make the stream transliterate characters missing from its encoding, instead of raising UnicodeEncodeError."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        codecs.register_error(TRANSLITERATE, _transliterated)
        reconfigure(errors=TRANSLITERATE)


def _transliterated(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return to_ascii(error.object[error.start : error.end]), error.end


def finite(value: float | None) -> float | None:
    """Return the number, or None if it is not one."""
    return value if value is not None and math.isfinite(value) else None


def digits(value: float, count: int, *, padded: bool = False) -> str:
    """Return `count` significant digits with separators, never a power of ten; padded keeps trailing zeros."""
    if not math.isfinite(value):
        return "unknown"
    whole = min(3, count)
    if abs(value) >= 10.0**whole - 0.5 * 10.0 ** (whole - count):
        return f"{value:,.0f}"
    text = f"{value:#.{count}g}" if padded else f"{value:.{count}g}"
    if "e" not in text:
        return text.rstrip(".")
    rounded = float(text)
    return f"{rounded:.{count - 1 - math.floor(math.log10(abs(rounded)))}f}".rstrip("0" if not padded else "")


def number(value: float | None, *, padded: bool = False) -> str:
    """Return a measured value in four digits, a dash for None."""
    value = finite(value)
    return DASH if value is None else digits(value, 4, padded=padded).replace("-", MINUS)


def signed(value: float | None, decimals: int) -> str:
    """Return a cost with its sign, e.g. +3.2."""
    value = finite(value)
    if value is None:
        return DASH
    # Rounded first, so that -0.04 is not shown as -0.0.
    rounded = round(value, decimals) + 0.0
    return f"{rounded:+,.{decimals}f}".replace("-", MINUS)


def percent(value: float) -> str:
    """Return a share or a half-width in percent: two digits below one, one decimal below a hundred."""
    return f"{digits(value, 2)} %" if abs(value) < 1.0 else f"{value:,.{1 if abs(value) < 99.95 else 0}f} %"


def overhead(value: float | None, bounds: Bounds, unit: str, budget: float | None = None) -> str:
    """Return e.g. `+3.2 % (95 % CI +2.6 to +3.9)`, or why the number is missing; never rounded onto its budget."""
    value = finite(value)
    if value is None:
        return DASH
    low, high = known_bounds(bounds, unit)
    decimals = decimals_beside(budget, decimals_for(value, low, high), value, low, high)
    return f"{signed(value, decimals)} {unit} ({bounds_text(bounds, unit, decimals)})"


def bounds_text(bounds: Bounds, unit: str, decimals: int = 2) -> str:
    """Return e.g. `95 % CI +2.6 to +3.9`, or `95 % CI from +2.6` if only one bound is known."""
    low, high = known_bounds(bounds, unit)
    interval = _interval(
        None if low is None else signed(low, decimals), None if high is None else signed(high, decimals)
    )
    return f"95 % CI {interval}" if interval else "no interval"


def between(bounds: Bounds) -> str:
    """Return e.g. `205.1 to 215.2` for the bounds of a value that has no sign; empty if there are none."""
    low, high = (None, None) if bounds is None else (finite(bounds[0]), finite(bounds[1]))
    return _interval(None if low is None else number(low), None if high is None else number(high))


def _interval(low: str | None, high: str | None) -> str:
    if low is None or high is None:
        return f"from {low}" if low is not None else f"up to {high}" if high is not None else ""
    return f"{low} to {high}"


def measured(value: float | None, bounds: Bounds, unit: str) -> str:
    """Return e.g. `210.3 ms (95 % CI 205.1 to 215.2)`."""
    text = number(value)
    if text == DASH:
        return text
    unit = f" {unit}" if unit else ""
    return f"{text}{unit} (95 % CI {between(bounds)})" if between(bounds) else f"{text}{unit} (no interval)"


def known_bounds(bounds: Bounds, unit: str) -> tuple[float | None, float | None]:
    """Return the informative bounds: infinity and a ratio of zero (-100 %) are dropped."""
    low, high = (None, None) if bounds is None else (finite(bounds[0]), finite(bounds[1]))
    if unit == "%" and low is not None and low <= -100.0:
        low = None
    return low, high


def decimals_for(value: float, low: float | None = None, high: float | None = None) -> int:
    """Return two decimals for small values (a budget of 1 % needs them), one for larger, none for huge."""
    largest = max(abs(each) for each in (value, low, high) if each is not None)
    return 2 if largest < 2.0 else 0 if abs(value) >= 100.0 else 1


def decimals_beside(limit: float | None, decimals: int, *values: float | None) -> int:
    """Return as many decimals as keep every value from being rounded onto a limit that it is not: 5.04 beside 5."""
    if limit is None:
        return decimals
    known = [value for value in values if value is not None and value != limit]
    enough = (n for n in range(decimals, 5) if all(round(value, n) != limit for value in known))
    return next(enough, 5)


def milliseconds(value_ms: float | None) -> str:
    """Return a latency in the unit that reads well: 134.5 µs, 6.25 ms, 12.3 s."""
    value_ms = finite(value_ms)
    if value_ms is None:
        return DASH
    if abs(value_ms) >= 10_000.0:
        return f"{number(value_ms / 1e3)} s"
    return f"{number(value_ms)} ms" if abs(value_ms) >= 0.9995 or not value_ms else f"{number(1e3 * value_ms)} µs"


def duration(seconds: float) -> str:
    """Return a readable time: 45 s, 4 min, 2 h 5 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")


def byte_size(count: float) -> str:
    """Return a file's size: 12 KB, 94.1 MB, 1.37 GB."""
    if count < 1e6:
        return f"{count / 1e3:.0f} KB"
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def joined(names: Sequence[str]) -> str:
    """Return `a`, `a and b` or `a, b and c`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def some(names: Sequence[str], most: int = 4) -> str:
    """Return the first names, and how many more there are."""
    return joined(names if len(names) <= most + 1 else [*names[:most], f"{len(names) - most} more"])


def counted(count: int, noun: str) -> str:
    """Return `1 cell` or `3 cells`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def hanging(head: str, text: str, width: int) -> str:
    """Return the text behind its head, wrapped below it between words; a command in it stays on one line to be copied.

    A width of 0 wraps nothing.
    """
    if not width or len(head) + len(text) <= width:
        return head + text
    import textwrap

    whole = _COMMAND.sub(lambda found: found[0].replace(" ", "\0"), text)
    lines: list[str] = []
    for part in whole.splitlines():
        lines += textwrap.wrap(
            part,
            max(width, len(head) + 20),
            initial_indent=" " * len(head) if lines else head,
            subsequent_indent=" " * len(head),
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines).replace("\0", " ")
