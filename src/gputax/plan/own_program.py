"""A user's own program as the command line names it, and how its output becomes latencies."""

from __future__ import annotations

import hashlib
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from gputax.plan.own_model import content_name

Unit = Literal["s", "ms", "us", "ns"]
UNITS: tuple[str, ...] = get_args(Unit)
NS = {"s": 1e9, "ms": 1e6, "us": 1e3, "µs": 1e3, "μs": 1e3, "ns": 1.0}
_LATENCY = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(s|ms|us|µs|μs|ns)?\s*")
# A day is not a latency.
LONGEST_NS = 86_400 * 10**9


ENGINE = "program"
DEVICE = "program"
"""The device of such a number: whatever the program used."""
SCENARIOS = ("saturate",)
# Enough repetitions for p90, unless they would take longer than this.
FEWEST_REPETITIONS, LONGEST_S = 64, 60.0


@dataclass(frozen=True)
class OwnProgram:
    """The words behind `--`, and how each repetition is timed; without words there is none."""

    words: tuple[str, ...] = ()
    unit: str = ""
    """The unit of a line that names none; empty: every line must name its own."""
    by_process: bool = False
    """One process is one repetition, timed from its start to its exit; otherwise the program prints its latencies."""
    timeout_s: float = 0.0
    """How long a repetition may take; 0: the engine's own limit."""

    @property
    def name(self) -> str:
        """The workload's name: the command's last words, and a digest of all of them."""
        title = " ".join(Path(word).name or word for word in self.words)
        return content_name(title, hashlib.sha256("\0".join(self.words).encode()).hexdigest())

    @property
    def options(self) -> list[str]:
        """The options of the command line before `--`."""
        return [*(["--unit", self.unit] if self.unit else []), *(["--repeat-by-process"] if self.by_process else [])]

    @property
    def text(self) -> str:
        """The command as a shell would take it."""
        return shlex.join(self.words)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> OwnProgram:
        """Rebuild it from JSON, where tuples are lists."""
        return OwnProgram(**{**data, "words": tuple(data.get("words", ()))})


class NoUnit(ValueError):
    """A number that would be a latency if its unit were known."""


def latency_ns(line: str, unit: str = "") -> int | None:
    """Return the latency of a line such as `12.3ms`, `450 us`, or `0.0123` with a unit; None if it is anything else."""
    found = _LATENCY.fullmatch(line)
    if found is None:
        return None
    named = found[2] or unit
    if not named:
        raise NoUnit(line)
    value = float(found[1]) * NS[named]
    return round(value) if math.isfinite(value) and 1.0 <= value <= LONGEST_NS else None
