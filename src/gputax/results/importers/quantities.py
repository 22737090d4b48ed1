"""Numbers with units as people write them, in our units: `6,977 ops/sec`, `0.14 ms`, `140 µs`, `4.31 GB/s`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["time", "rate", "bandwidth"]
# To our units: milliseconds, per second, GB/s (10^9 bytes).
_TIMES = {
    1e-6: "ns nanosecond nanoseconds nsec",
    1e-3: "us µs μs usec microsecond microseconds",
    1.0: "ms msec millisecond milliseconds",
    1e3: "s sec second seconds",
}
_BANDWIDTHS = {1e-9: "B", 1e-6: "KB kB", 1e-3: "MB", 1.0: "GB", 1e3: "TB", 2**20 / 1e9: "MiB", 2**30 / 1e9: "GiB"}
# An image, an inference and a sample are the same; an operation, a query or a token may not be.
_COUNTED = {
    "samples": "sample samples image images img imgs inference inferences inf infer",
    "queries": "query queries request requests req reqs",
    "operations": "op ops operation operations",
    "tokens": "token tokens tok",
}
TIME_FACTOR: dict[str, float] = {name: factor for factor, names in _TIMES.items() for name in names.split()}
BANDWIDTH_FACTOR: dict[str, float] = {name: factor for factor, names in _BANDWIDTHS.items() for name in names.split()}
COUNTED: dict[str, str] = {name: counted for counted, names in _COUNTED.items() for name in names.split()}
_PER_SECOND = re.compile(r"\s*(?:/|\bper\b)\s*(?:s|sec|second)s?\b", re.IGNORECASE)
_NUMBER = r"[+-]?\d[\d.,_'\u00a0\u202f]*(?:[eE][+-]?\d+)?|[+-]?(?:nan|inf(?:inity)?)\b"
_UNIT = r"[A-Za-zµμ]+(?:\s*(?:/|\bper\b)\s*[A-Za-z]+)?"
_QUANTITY = re.compile(rf"(?<![\w.])({_NUMBER})\s*({_UNIT})?", re.IGNORECASE)
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:([,_'\u00a0\u202f])\d{3})(?:\1\d{3})*(\.\d+)?")


@dataclass(frozen=True)
class Unit:
    """The kind of a unit, and its factor to ours."""

    kind: Kind
    factor: float
    counted: str = ""
    """For a rate: samples, queries, operations or tokens."""


@dataclass(frozen=True)
class Quantity:
    """A number in a text; `value` is None if it cannot be parsed."""

    text: str
    value: float | None
    unit_text: str
    last_digit: float
    """The value of the last digit: how far the number was rounded."""
    end: int
    """Its end position in the line."""


def unit_of(text: str) -> Unit | None:
    """Return the unit, None if unknown; `Gb` is bits and not supported."""
    rate = _PER_SECOND.search(text)
    if rate:
        counted = text[: rate.start()].strip()
        if counted in BANDWIDTH_FACTOR:
            return Unit("bandwidth", BANDWIDTH_FACTOR[counted])
        known = COUNTED.get(counted.lower())
        return Unit("rate", 1.0, known) if known else None
    name = text.strip()
    if name.lower() == "qps":
        return Unit("rate", 1.0, "queries")
    factor = TIME_FACTOR.get(name.lower())
    return Unit("time", factor) if factor is not None else None


def quantities(line: str) -> Iterator[Quantity]:
    """Return every number of a line with the unit behind it."""
    for found in _QUANTITY.finditer(line):
        number = found[1].rstrip(".,_'")
        # A comma or full stop at the end belongs to the sentence, so the next word is not this number's unit.
        unit = (found[2] or "") if number == found[1] else ""
        value, last_digit = parse_number(number)
        yield Quantity(number, value, unit, last_digit, found.end())


def parse_number(text: str) -> tuple[float | None, float]:
    """Return the value and the value of its last digit; None for `0,14`, which is ambiguous."""
    grouped = _GROUPED.fullmatch(text)
    plain = text.replace(grouped[1], "") if grouped else text
    try:
        value = float(plain)
    except ValueError:
        return None, math.nan
    if any(mark in plain for mark in "_'"):
        return None, math.nan
    mantissa, _, exponent = plain.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return value, 10.0 ** (int(exponent or 0) - decimals) if math.isfinite(value) else math.nan
