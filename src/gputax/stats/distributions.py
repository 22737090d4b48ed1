"""Quantiles and tail areas of t, F and the binomial, from scipy.special.

scipy.special is imported inside each function: it costs 0.3 s and scipy.stats 0.7 s more (measured), which
`gputax --help` must not pay.
"""

from __future__ import annotations

import math


def t_quantile(probability: float, degrees_of_freedom: float) -> float:
    """Return the quantile of Student's t at this probability."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, probability))


def t_two_sided_p(t: float, degrees_of_freedom: float) -> float:
    """Return the probability of a t at least this far from 0 on either side."""
    from scipy.special import stdtr

    return float(2.0 * stdtr(degrees_of_freedom, -abs(t)))


def noncentral_t_cdf(t: float, degrees_of_freedom: float, noncentrality: float) -> float:
    """Return the probability of a noncentral t below this value."""
    from scipy.special import nctdtr

    return float(nctdtr(degrees_of_freedom, noncentrality, t))


def f_upper_p(f: float, numerator_df: float, denominator_df: float) -> float:
    """Return the probability of an F ratio at least this large."""
    from scipy.special import fdtrc

    return float(fdtrc(numerator_df, denominator_df, f))


def normal_cdf(z: float) -> float:
    """Return the probability of a standard normal value below z."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def binomial_quantile(probability: float, trials: int, chance: float) -> int:
    """Return the smallest k with P[Binomial(trials, chance) <= k] >= probability."""
    from scipy.special import bdtr, bdtrik

    k = max(0, math.ceil(float(bdtrik(probability, trials, chance))))
    # bdtrik inverts a continuous extension of the sum and may return one above the smallest k.
    return k - 1 if k > 0 and float(bdtr(k - 1, trials, chance)) >= probability else k
