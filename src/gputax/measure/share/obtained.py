"""Asked against obtained: the rows of an experiment whose tenants asked for shares, each with its verdict; pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gputax.measure.share.asking import RESOLUTION_BYTES
from gputax.plan.shares import SITUATIONS, WHOLE, AskingPlan, Resource, Situation
from gputax.results.documents.sharing import Interval, ObtainedRow, SharedCell, SharedFigure, TenantResult
from gputax.stats.obtained import Excess, Obtained, ObtainedMemory, Shortfall, obtained_share
from gputax.stats.verdicts import ALPHA, Claim, Judgement, Verdict, judge_all
from gputax.text import counted, digits

NOT_ASKED = "no share of it was asked for"
NO_WHOLE = "nothing to compare with: no tenant with the whole device was measured in the same repeat"
DISTURBED = "the machine was disturbed"


@dataclass(frozen=True)
class _Share:
    """One tenant in one situation, over the repeats."""

    technique: str
    resource: Resource
    tenant: int
    same_as: tuple[int, ...]
    situation: Situation
    asked: float | None
    exact: bool
    obtained: Obtained | None
    repeats: int
    disturbed: int


def obtained_rows(plan: AskingPlan, cells: Sequence[SharedCell], *, accepts_disturbed: bool) -> tuple[ObtainedRow, ...]:
    """Return a row for each tenant, situation and resource; memory only where a share of it was asked for."""
    shares = [share for name in plan.techniques for share in _shares(plan, name, cells)]
    unfilled = {name: _unfilled(plan, shares, name) for name in plan.techniques}
    answers: dict[int, tuple[Verdict | None, str]] = {}
    judged: dict[int, tuple[Obtained, float, _Share]] = {}
    for at, share in enumerate(shares):
        if share.asked is None:
            answers[at] = (None, NOT_ASKED)
        elif share.obtained is None:
            answers[at] = ("not comparable", NO_WHOLE)
        elif why := _refused(share, unfilled[share.technique], accepts_disturbed):
            answers[at] = ("not comparable", why)
        else:
            judged[at] = (share.obtained, share.asked, share)
    answers |= _judged(judged, plan.tolerance_percent)
    return tuple(_row(share, *answers[at]) for at, share in enumerate(shares))


def _shares(plan: AskingPlan, technique: str, cells: Sequence[SharedCell]) -> list[_Share]:
    valid = [cell for cell in cells if cell.valid]
    whole = [cell for cell in valid if cell.technique == plan.whole_of(technique) and cell.situation == WHOLE]
    own = [cell for cell in valid if cell.technique == technique]
    found = []
    for tenant in range(1, len(plan.shares) + 1):
        for situation in SITUATIONS:
            if situation != "equals" and tenant not in plan.measured:
                continue
            # Of all tenants together each is measured; else the measured one comes first.
            place = tenant - 1 if situation == "equals" else 0
            same = tuple(
                other
                for other, share in enumerate(plan.shares, 1)
                if situation != "equals" and other != tenant and share == plan.shares[tenant - 1]
            )
            number = 0 if situation == "equals" else tenant
            met = [cell for cell in own if (cell.situation, cell.number) == (situation, number)]
            found.append(_of("compute", technique, tenant, same, situation, met, whole, place, _rate))
            if any(cell.results[place].asked_memory for cell in met):
                found.append(_of("memory", technique, tenant, same, situation, met, whole, place, _memory))
    return found


def _rate(result: TenantResult) -> float | None:
    return result.throughput_per_s


def _memory(result: TenantResult) -> float | None:
    return None if result.memory_bytes is None else float(result.memory_bytes)


def _of(
    resource: Resource,
    technique: str,
    tenant: int,
    same_as: tuple[int, ...],
    situation: Situation,
    met: Sequence[SharedCell],
    whole: Sequence[SharedCell],
    place: int,
    value: Callable[[TenantResult], float | None],
) -> _Share:
    got = {cell.repeat: found for cell in met if (found := value(cell.results[place])) is not None}
    of = {cell.repeat: found for cell in whole if (found := value(cell.results[0]))}
    asked = {_asked(resource, cell.results[place]) for cell in met}
    common = got.keys() & of.keys()
    obtained: Obtained | None = obtained_share(got, of) if resource == "compute" else None
    if resource == "memory" and common:
        repeats = sorted(common)
        ratios = np.array([got[repeat] / of[repeat] for repeat in repeats])
        obtained = ObtainedMemory(ratios, RESOLUTION_BYTES / min(of[repeat] for repeat in repeats))
    disturbed = {cell.repeat for cell in (*met, *whole) if cell.disturbed and cell.repeat in common}
    return _Share(
        technique,
        resource,
        tenant,
        same_as,
        situation,
        asked.pop() if len(asked) == 1 else None,
        all(cell.results[place].asked_exactly for cell in met),
        obtained,
        len(common),
        # Memory is counted, not timed: other load does not change it.
        len(disturbed) if resource == "compute" else 0,
    )


def _asked(resource: Resource, result: TenantResult) -> float | None:
    return result.asked_compute if resource == "compute" else result.asked_memory


def _unfilled(plan: AskingPlan, shares: Sequence[_Share], technique: str) -> str:
    """Return why rates are not shares of this device: together the tenants did more than one with all of it.

    Then one tenant alone leaves the device idle, and its rate is not that of the whole device.
    """
    known = [
        share.obtained
        for share in shares
        if (share.technique, share.resource, share.situation) == (technique, "compute", "equals") and share.obtained
    ]
    together = sum(each.bounds(ALPHA)[0] for each in known)
    if len(known) < len(plan.shares) or together <= 1.0 + plan.tolerance_percent / 100.0:
        return ""
    total = digits(100.0 * sum(each.value for each in known), 3)
    return (
        f"together the tenants did {total} % of what one does with the whole device, so one does not fill it: "
        "use a larger --batch or --in-flight"
    )


def _refused(share: _Share, unfilled: str, accepts_disturbed: bool) -> str:
    if share.resource == "compute" and unfilled:
        return unfilled
    if share.disturbed and not accepts_disturbed:
        return f"{DISTURBED} in {share.disturbed} of {counted(share.repeats, 'repeat')}"
    return ""


def _judged(
    shares: Mapping[int, tuple[Obtained, float, _Share]], tolerance_percent: float
) -> dict[int, tuple[Verdict | None, str]]:
    """Judge all shares at once; of a share that is a cap, both what is missing and what is too much."""
    claims: list[tuple[int, Claim]] = []
    for at, (obtained, asked, share) in shares.items():
        claims.append((at, Claim(Shortfall(obtained, asked), tolerance_percent)))
        if share.exact:
            claims.append((at, Claim(Excess(obtained, asked), tolerance_percent)))
    judgements: dict[int, list[Judgement]] = {}
    for (at, _), judgement in zip(claims, judge_all([claim for _, claim in claims]), strict=True):
        judgements.setdefault(at, []).append(judgement)
    return {
        at: _verdict(found[0], found[1] if len(found) > 1 else None, tolerance_percent, shares[at][2].repeats)
        for at, found in judgements.items()
    }


def _verdict(less: Judgement, more: Judgement | None, tolerance: float, repeats: int) -> tuple[Verdict, str]:
    def at(bound: float | None) -> str:
        return "unknown" if bound is None or not math.isfinite(bound) else f"{digits(bound, 3)} %"

    allowed = f"tolerance {tolerance:g} %"
    if less.verdict == "fail":
        return "fail", f"at least {at(less.lower)} less than asked for; {allowed}"
    if more is not None and more.verdict == "fail":
        return "fail", f"at least {at(more.lower)} more than asked for: the cap does not hold; {allowed}"
    if less.verdict == "pass" and (more is None or more.verdict == "pass"):
        also = f", and at most {at(more.upper)} more" if more is not None else ""
        return "pass", f"at most {at(less.upper)} less than asked for{also}; {allowed}"
    if repeats < 2:
        return "inconclusive", "one repeat has no interval; use --repeats 5"
    together = f" ({less.cells_tested} bounds judged together)" if less.cells_tested > 1 else ""
    return "inconclusive", f"the bounds do not clear the {allowed}{together}: more --repeats would decide"


def _row(share: _Share, verdict: Verdict | None, reason: str) -> ObtainedRow:
    return ObtainedRow(
        technique=share.technique,
        resource=share.resource,
        tenant=share.tenant,
        same_as=share.same_as,
        situation=share.situation,
        asked=share.asked,
        exactly=share.exact,
        obtained=_figure(share),
        repeats=share.repeats,
        disturbed=share.disturbed,
        verdict=verdict,
        reason=reason,
    )


def _figure(share: _Share) -> SharedFigure:
    if share.obtained is None:
        return SharedFigure(value=None)
    low, high = share.obtained.bounds(ALPHA / 2.0)
    interval: Interval | None = (low, high) if math.isfinite(high) else None
    return SharedFigure(value=share.obtained.value, ci95=interval)
