"""The interval of an obtained share holds the truth, and its verdicts are wrong as rarely as they promise."""

from __future__ import annotations

import numpy as np
import pytest

from gputax.stats.obtained import Excess, Shortfall, obtained_share
from gputax.stats.verdicts import judge

FULL, QUICK = 4000, 600
TOLERANCE = 5.0
Rates = dict[int, float]


def repeats_of(
    share: float, repeats: int, draw: np.random.Generator, luck: str, noise: float = 0.005
) -> tuple[Rates, Rates]:
    """Return rates of a tenant and of the whole device: each repeat has new processes, on a machine that wanders."""

    def processes() -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        if luck == "two kinds":
            return np.asarray(0.01 * draw.choice((-1.0, 1.0), repeats))
        return np.asarray(draw.normal(0.0, 0.01, repeats))

    machine = np.cumsum(draw.normal(0.0, 0.02, repeats))  # both sides of a repeat meet it
    tenant = np.exp(machine + processes() + draw.normal(0.0, noise, repeats)) * share
    whole = np.exp(machine + processes() + draw.normal(0.0, noise, repeats))
    return (
        {number: float(rate) for number, rate in enumerate(tenant)},
        {number: float(rate) for number, rate in enumerate(whole)},
    )


@pytest.mark.parametrize("luck", ["two kinds", "normal"])
@pytest.mark.parametrize("repeats", [3, 5, 10])
def test_the_interval_holds_the_share(luck: str, repeats: int, full: bool) -> None:
    runs, draw = FULL if full else QUICK, np.random.default_rng(repeats)
    held = 0
    for _ in range(runs):
        found = obtained_share(*repeats_of(0.3, repeats, draw, luck))
        assert found is not None
        low, high = found.bounds(0.025)
        held += low <= 0.3 <= high
    # 95 % is promised; three standard errors of the simulation below that.
    assert held / runs > 0.95 - 3.0 * (0.95 * 0.05 / runs) ** 0.5 - 0.01


@pytest.mark.parametrize("luck", ["two kinds", "normal"])
@pytest.mark.parametrize("kind", [Shortfall, Excess])
def test_at_the_tolerance_a_wrong_verdict_is_rare(luck: str, kind: type[Shortfall] | type[Excess], full: bool) -> None:
    runs, draw = FULL if full else QUICK, np.random.default_rng(7)
    true = 0.3 * (0.95 if kind is Shortfall else 1.05)
    passed = failed = 0
    for _ in range(runs):
        found = obtained_share(*repeats_of(true, 5, draw, luck))
        assert found is not None
        verdict = judge(kind(found, 0.3), TOLERANCE).verdict
        passed += verdict == "pass"
        failed += verdict == "fail"
    limit = 0.05 + 3.0 * (0.05 * 0.95 / runs) ** 0.5 + 0.01
    assert passed / runs < limit
    assert failed / runs < limit


def test_equal_tenants_pass_and_one_that_gets_a_fifth_less_fails(full: bool) -> None:
    runs, draw = FULL if full else QUICK, np.random.default_rng(11)
    verdicts = {
        true: [
            judge(Shortfall(found, 0.5), TOLERANCE).verdict
            for _ in range(runs)
            if (found := obtained_share(*repeats_of(true, 5, draw, "normal"))) is not None
        ]
        for true in (0.5, 0.4)
    }
    assert verdicts[0.5].count("fail") == 0
    assert verdicts[0.5].count("pass") > 0.9 * runs
    assert verdicts[0.4].count("fail") > 0.99 * runs
