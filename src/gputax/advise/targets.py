"""The question: latency targets, a rate per tenant, a price of the device."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from gputax.errors import UsageError, unknown_name
from gputax.plan.tokens import TPOT, TTFT

PERCENTILES = ("p50", "p90", "p99")
TOKEN_PERCENTILES = tuple(f"{series}_{name}" for series in (TTFT, TPOT) for name in PERCENTILES)
# What serving a language model is judged by most; p99 of either can be named.
TOKEN_SYNONYMS = {TTFT: f"{TTFT}_p90", TPOT: f"{TPOT}_p90"}
STATISTICS = ("mean", *PERCENTILES, *TOKEN_PERCENTILES)
_UNITS_MS = {"us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3}
_EXAMPLE = "e.g. --slo p99=50ms"


@dataclass(frozen=True)
class Target:
    """An upper limit in milliseconds for the mean or a percentile."""

    statistic: str
    at_most_ms: float

    def __str__(self) -> str:
        return f"{self.statistic} ≤ {self.at_most_ms:g} ms"


@dataclass(frozen=True)
class Question:
    """All targets that a technique must meet, and the price of the device."""

    targets: tuple[Target, ...]
    rate_per_s: float | None = None
    """Inferences per second that each tenant needs; None means no requirement."""
    price_per_h: float | None = None
    currency: str = ""
    up_to: int | None = None
    """The most tenants to consider; None means as many as were measured."""

    def __str__(self) -> str:
        words = [str(target) for target in self.targets]
        if self.rate_per_s is not None:
            words.append(f"at least {self.rate_per_s:g} inferences/s for each tenant")
        return " and ".join(words)


def parse_target(text: str) -> Target:
    """Parse `p99=50ms`, `mean=0.2s`, `p50=800us`, or `ttft=200ms`, which is the p90 of it."""
    name, equals, value = (part.strip() for part in text.partition("="))
    name = TOKEN_SYNONYMS.get(name, name)
    if not equals:
        raise UsageError(f"--slo {text!r} is not a target", next_step=_EXAMPLE)
    if name not in STATISTICS:
        raise unknown_name("statistic", name, (*STATISTICS, *TOKEN_SYNONYMS))
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(us|µs|ms|s)", value)
    if not found:
        raise UsageError(
            f"--slo {text!r}: {value!r} is not a time with a unit (us, ms, s)", next_step=_with_unit(name, value)
        )
    at_most_ms = float(found[1]) * _UNITS_MS[found[2]]
    if not 0.0 < at_most_ms < math.inf:
        raise UsageError(f"--slo {text!r}: the target must be above zero", next_step=_EXAMPLE)
    return Target(name, at_most_ms)


def _with_unit(name: str, value: str) -> str:
    """Suggest the same target with a unit."""
    if not re.fullmatch(r"\d{1,9}(?:\.\d{0,9})?", value) or not float(value):
        return _EXAMPLE
    return f"add a unit: --slo {name}={value}ms, or {name}={value}s"


def parse_targets(texts: tuple[str, ...]) -> tuple[Target, ...]:
    """Parse all targets; each statistic may appear once."""
    targets = tuple(parse_target(part) for text in texts for part in text.split(","))
    names = [target.statistic for target in targets]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--slo names {name} twice", next_step="keep the stricter one")
    return targets
