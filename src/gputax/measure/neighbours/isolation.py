"""Isolation checks between tenants, judged as pass or fail; the judgements are pure."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gputax.environments.connection import WorkerConnection
from gputax.environments.environment import Evidence
from gputax.errors import CellError, WorkerError
from gputax.measure.neighbours.cell import parts_of
from gputax.measure.neighbours.workers import CrashOutcome, proven
from gputax.plan.techniques import SharePlan, Technique, family_of
from gputax.results.documents.sharing import IsolationRow
from gputax.sharing.place import SharedPlace
from gputax.text import digits

PROBE_S = 300.0
MIB = 1 << 20
# Blocks of 1 MiB and the driver's own needs: a tenant that got this share of the advertised memory got all of it.
NEARLY_ALL = 0.9
MOST_FILLED_BYTES = 2 << 30
FILLED_BEYOND_BYTES = 64 * MIB
QUOTA: Final = "memory quota holds"
FOREIGN: Final = "no foreign memory readable"
CRASH: Final = "a crash stays with its tenant"


def try_isolation(place: SharedPlace, technique: Technique, plan: SharePlan, device: str) -> list[IsolationRow]:
    """Let two tenants of the technique try to break each other's isolation."""
    tenants = place.tenants(technique, 2, parts_of(plan), plan.setup)
    started: list[WorkerConnection] = []

    def start(number: int) -> WorkerConnection:
        started.append(WorkerConnection(tenants[number].environment))
        started[-1].describe()
        return started[-1]

    secret = secrets.token_hex(16).encode()  # letters and digits survive a kernel unchanged as floats
    ask = _Asking(family_of(device), secret)
    try:
        holder, reader = start(0), start(1)
        fills = ask.fills(holder, reader)
        place_held = ask(holder, "hold")
        proofs = [proven(each, device) for each in (holder, reader)]
        evidence = place.evidence(technique, [each.evidence for each in proofs], [each.described for each in proofs])
        attempts = ask.attempts(reader, place_held)
        control = ask.control(holder)
        for each in (holder, reader):
            each.end()  # killed, so that nothing clears the secret
        later = ask.attempts(start(1), {})
        attempts += [{**each, "way": f"{each['way']}, after its end"} for each in later]
    finally:
        for each in started:
            each.end()
    rows = [
        judged_quota(technique, family_of(device), fills, quota_of([each.evidence for each in proofs])),
        judged_foreign_memory(technique, attempts, control=control),
    ]
    return [_unproven(row, evidence) for row in rows]


class _Asking:
    """Sends the probes of one experiment."""

    def __init__(self, family: str, secret: bytes) -> None:
        self._family, self._secret = family, secret.hex()

    def __call__(self, connection: WorkerConnection, probe: str, **parameters: Any) -> dict[str, Any]:
        answer = connection.call(
            "describe",
            about="isolation",
            family=self._family,
            probe=probe,
            secret=self._secret,
            stall_timeout_s=PROBE_S,
            **parameters,
        )
        return dict(answer["isolation"])

    def fills(self, one: WorkerConnection, other: WorkerConnection) -> list[dict[str, Any]]:
        """Let one tenant allocate all it can, then, while it holds that, the other."""
        if self._family == "cpu":
            return self._host_fills(one, other)
        fills = [self(one, "fill"), self(other, "fill")]
        self(one, "drop")
        self(other, "drop")
        return fills

    def _host_fills(self, one: WorkerConnection, other: WorkerConnection) -> list[dict[str, Any]]:
        fills = [self(one, "fill"), self(other, "fill")]
        limit = fills[0].get("limit_bytes")
        if _own_limits(fills) and limit is not None and limit <= MOST_FILLED_BYTES:
            fills[0] = self(one, "fill", most_bytes=limit + FILLED_BEYOND_BYTES)
        return fills

    def control(self, holder: WorkerConnection) -> bool:
        """Whether the owner can still read its own secret; an attempt may have broken its context or ended it."""
        try:
            return bool(self(holder, "check").get("there"))
        except CellError:
            return False

    def attempts(self, reader: WorkerConnection, held: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return every attempt to read the secret; a reader that was killed for it has read nothing."""
        try:
            return list(self(reader, "read", place=dict(held))["attempts"])
        except WorkerError as error:
            return [{"way": "reading at the other's address", "outcome": f"the reader {error.what}", "found": False}]


def quota_of(evidences: Sequence[Evidence]) -> int | None:
    """Return the memory quota in a tenant's evidence."""
    given = [each.fact("memory_limit_bytes") for each in evidences if each.fact("memory_limit_bytes")]
    return int(min(given)) if given else None


def judged_quota(
    technique: Technique, family: str, fills: Sequence[Mapping[str, Any]], quota_bytes: int | None
) -> IsolationRow:
    """Judge what two tenants could allocate, one after the other, the second while the first holds its part."""
    passed, text = _host_quota(fills) if family == "cpu" else _device_quota(technique, fills, quota_bytes)
    return IsolationRow(
        technique=technique.name, check=QUOTA, passed=passed, text=text, evidence={"fills": [dict(f) for f in fills]}
    )


def _device_quota(
    technique: Technique, fills: Sequence[Mapping[str, Any]], quota_bytes: int | None
) -> tuple[bool | None, str]:
    first, second = fills
    quota = int(quota_bytes or first["limit_bytes"])
    took = f"one tenant took {_mib(first['taken_bytes'])} of its {_mib(quota)} MiB"
    left = f"the other then got {_mib(second['taken_bytes'])} of its {_mib(second['limit_bytes'])} MiB"
    if first["taken_bytes"] > quota:
        return False, f"{took}: more than its quota"
    if not first["out_of_memory"]:
        return False, f"{took} and was then refused by {first['refusal'] or 'nothing'}, not because memory ran out"
    if second["taken_bytes"] >= NEARLY_ALL * int(second["limit_bytes"]):
        return True, f"{took}, then {first['refusal']}; {left}"
    if quota_bytes is not None:
        return True, f"{took}, then {first['refusal']}; but {left}: the quotas add up to more than the device has"
    if technique.bound != "none":
        return False, f"{took}; {left}: nothing kept the first tenant out of the other's memory"
    return None, f"no quota is set: {took}, and {left}"


def _host_quota(fills: Sequence[Mapping[str, Any]]) -> tuple[bool | None, str]:
    limit = fills[0].get("limit_bytes")
    if limit is None:
        return None, "no memory limit is set: the stand-in only shares or caps CPU time"
    if not _own_limits(fills):
        return None, f"the only memory limit ({_mib(limit)} MiB) is shared by both tenants: no quota per tenant"
    if "taken_bytes" not in fills[0]:
        return None, f"the limit of {_mib(limit)} MiB is too large to fill here"
    taken, refusal = int(fills[0]["taken_bytes"]), str(fills[0]["refusal"])
    if taken > limit or not fills[0]["out_of_memory"]:
        return False, f"a tenant took {_mib(taken)} MiB, its limit is {_mib(limit)} MiB"
    return True, f"a tenant took {_mib(taken)} of its {_mib(limit)} MiB, then was {refusal}"


def _own_limits(fills: Sequence[Mapping[str, Any]]) -> bool:
    sources = [each.get("source") for each in fills]
    return all(sources) and len(set(sources)) == len(sources)


def judged_foreign_memory(
    technique: Technique, attempts: Sequence[Mapping[str, Any]], *, control: bool
) -> IsolationRow:
    """Judge whether a tenant found another's secret, by whichever way."""
    found = [str(each["way"]) for each in attempts if each["found"]]
    tried = "; ".join(
        f"{each['way']}: {'the secret was read' if each['found'] else each['outcome']}" for each in attempts
    )
    passed: bool | None = not found
    text = tried
    if found and technique.stand_in:
        text = f"{tried}. Tenants of this stand-in are processes of one user, and Linux lets a user debug its own"
    if not control and not found:
        passed, text = None, f"afterwards the owner could not read its own secret either: {tried}"
    evidence = {"attempts": [dict(each) for each in attempts], "control": control}
    return IsolationRow(technique=technique.name, check=FOREIGN, passed=passed, text=text, evidence=evidence)


def judged_crash(technique: Technique, outcome: CrashOutcome | None) -> IsolationRow:
    """Judge what the crashes of a neighbour did to the others."""
    passed: bool | None = None
    if outcome is None:
        text = "not tried: the neighbour `crash` was not requested"
    elif not outcome.ends:
        text = "the neighbour did not crash"
    else:
        passed = outcome.contained
        text = _crash_text(outcome)
    evidence = {} if outcome is None else {"ends": list(outcome.ends), "runs_beside": outcome.runs_beside}
    return IsolationRow(technique=technique.name, check=CRASH, passed=passed, text=text, evidence=evidence)


def _crash_text(outcome: CrashOutcome) -> str:
    ends = ", ".join(dict.fromkeys(outcome.ends))
    crashes = f"{len(outcome.ends)} crash{'es' if len(outcome.ends) != 1 else ''} (the neighbour {ends})"
    if outcome.victim_error:
        return f"after {crashes} the victim did not continue: {outcome.victim_error}"
    if outcome.new_tenant_error:
        return f"after {crashes} no new tenant could start: {outcome.new_tenant_error}"
    return (
        f"{crashes}: the victim continued without an error ({outcome.runs_beside} runs next to it, the longest "
        f"{digits(outcome.longest_beside_ms, 3)} ms, alone {digits(outcome.longest_alone_ms, 3)} ms); "
        "a new tenant started each time"
    )


def _unproven(row: IsolationRow, evidence: Evidence) -> IsolationRow:
    """Remove the verdict from a row whose technique was not proven active."""
    if evidence.active:
        return row
    reasons = evidence.why_not
    return row.model_copy(update={"passed": None, "text": f"the technique was not active ({reasons}): {row.text}"})


def _mib(count: Any) -> str:
    return f"{int(count) / MIB:,.0f}"
