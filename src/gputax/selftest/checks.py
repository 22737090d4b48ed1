"""The comparison of two sides' answers, question by question; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gputax.selftest.documented import documented_difference

Status = Literal["pass", "fail", "different", "documented", "skipped"]
STATUSES: tuple[Status, ...] = ("fail", "different", "documented", "skipped", "pass")
BARE, PROXIED = "bare", "bare+proxy"
NOT_SUPPORTED_CODES = (801, -1)
LONGEST_SHOWN = 160


@dataclass(frozen=True)
class Check:
    """One question, what both sides answered, and what follows from it."""

    group: str
    name: str
    status: Status
    reason: str = ""
    bare: Any = None
    proxied: Any = None


@dataclass(frozen=True)
class Reply:
    """What one side said to a group of questions."""

    rows: Sequence[Mapping[str, Any]] = ()
    device_name: str = ""
    failure: str = ""
    """Why the group ended before its last question."""
    last: str = ""
    """The question that was asked then."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    is_missing: bool = False
    """It could not be asked here at all: an engine or a library is not installed."""


def compared(group: str, bare: Reply, proxied: Reply) -> list[Check]:
    """Return a check for each question that any side answered, and one for each side that failed."""
    sides = {BARE: bare, PROXIED: proxied}
    checks = []
    for side, reply in sides.items():
        if reply.failure:
            at = f" at {reply.last!r}" if reply.last else ""
            checks.append(Check(group, f"({side})", "fail", f"{side} ended{at}: {reply.failure}"))
        elif reply.evidence.get("active") is not True:
            why = "; ".join(map(str, reply.evidence.get("reasons") or ["no evidence"]))
            checks.append(Check(group, f"({side})", "fail", f"{side} was not what it claims to be: {why}"))
    rows = [{str(row["name"]): row for row in reply.rows} for reply in (bare, proxied)]
    for name in dict.fromkeys([*rows[0], *rows[1]]):
        checks.append(_check(group, name, rows[0].get(name), rows[1].get(name)))
    return checks


def _check(group: str, name: str, bare: Mapping[str, Any] | None, proxied: Mapping[str, Any] | None) -> Check:
    if bare is None or proxied is None:
        asked, other = (PROXIED, BARE) if bare is None else (BARE, PROXIED)
        return Check(group, name, "fail", f"{asked} was asked, {other} did not come so far")
    if "wrong" in bare or "wrong" in proxied:
        return _failed(group, name, bare, proxied)
    answers = (comparable(bare["answer"]), comparable(proxied["answer"]))
    if answers[0] == answers[1]:
        return Check(group, name, "pass", bare=bare["answer"], proxied=proxied["answer"])
    why = documented_difference(group, name, *answers)
    reason = why or first_difference(*answers)
    return Check(group, name, "documented" if why else "different", reason, bare["answer"], proxied["answer"])


def comparable(answer: Any) -> Any:
    """Return the part of an answer that both sides must give alike: how long a kernel takes is not."""
    return {key: value for key, value in answer.items() if key != "time"} if isinstance(answer, Mapping) else answer


def _failed(group: str, name: str, bare: Mapping[str, Any], proxied: Mapping[str, Any]) -> Check:
    words = [f"{side}: {row['wrong']}" for side, row in ((BARE, bare), (PROXIED, proxied)) if "wrong" in row]
    codes = [row.get("refused") for row in (bare, proxied)]
    if len(words) == 2 and codes[0] == codes[1] and codes[0] in NOT_SUPPORTED_CODES:
        return Check(group, name, "skipped", f"neither side supports it: {bare['wrong']}")
    return Check(group, name, "fail", "; ".join(words), bare.get("answer"), proxied.get("answer"))


def first_difference(bare: Any, proxied: Any, place: str = "") -> str:
    """Return where two answers differ first, in words."""
    if isinstance(bare, Mapping) and isinstance(proxied, Mapping):
        for key in dict.fromkeys([*bare, *proxied]):
            if bare.get(key) != proxied.get(key):
                return first_difference(bare.get(key), proxied.get(key), f"{place}.{key}" if place else str(key))
    if isinstance(bare, list) and isinstance(proxied, list) and len(bare) == len(proxied):
        for index, (one, other) in enumerate(zip(bare, proxied, strict=True)):
            if one != other:
                return first_difference(one, other, f"{place}[{index}]")
    at = f"at {place}: " if place else ""
    return f"{at}{BARE} {_shown(bare)}, {PROXIED} {_shown(proxied)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"


def counts(checks: Sequence[Check]) -> dict[str, int]:
    """Return how many checks have each status."""
    return {status: sum(check.status == status for check in checks) for status in STATUSES}


def is_equal(checks: Sequence[Check]) -> bool:
    """Return whether nothing failed and nothing differs beyond what the documentation says."""
    return not any(check.status in ("fail", "different") for check in checks)
