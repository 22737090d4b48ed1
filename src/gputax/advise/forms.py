"""The three forms of latency as a function of tenants: turns, contention, partition; as logarithms with derivatives.

Each form has at most two parameters, so that two numbers of tenants fix it and every further one checks it. The first
is always ln(latency of one tenant in ms).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gputax.stats.inputs import FloatArray

# Beyond this one tenant alone would be a thousand times faster than next to another; no known device does that.
LARGEST_CONTENTION = 1000.0


@dataclass(frozen=True)
class Parameter:
    """One parameter of a form and how to display it."""

    name: str
    title: str
    unit: str
    shown: Callable[[float], float]
    """Converts from the scale of the fit to the displayed one; always increasing."""
    least: float = -np.inf


@dataclass(frozen=True)
class Form:
    """One way in which latency depends on the number of tenants."""

    name: str
    formula: str
    why: str
    parameters: tuple[Parameter, ...]
    log_latency: Callable[[FloatArray, FloatArray], FloatArray]
    slopes: Callable[[FloatArray, FloatArray], FloatArray]
    """The derivative of the logarithm with respect to each parameter; one row per number of tenants."""
    start: Callable[[FloatArray, FloatArray], FloatArray]
    """A first guess from numbers of tenants and log latencies."""

    def lacks(self, tenants: Sequence[int], *, single: bool = False) -> str:
        """Return the measurements that are missing to fit this form; empty if none are."""
        counts = sorted(set(tenants))
        if not counts:
            return "at least two numbers of tenants"
        if self.name == "turns" and 1 not in counts:
            return "1 tenant: the switching loss is the difference between one tenant and several"
        if len(counts) == 1 and not single:
            return f"a number of tenants other than {counts[0]}"
        return ""


ONE_TENANT = Parameter("one_tenant_ms", "latency of one tenant", "ms", lambda value: float(np.exp(value)))
LOSS = Parameter("switching_loss_percent", "loss from switching", "%", lambda value: float(100.0 * np.expm1(value)))
CONTENTION = Parameter("contention", "contention", "", float, 0.0)
SLICE = Parameter("slice_ms", "latency in a slice", "ms", lambda value: float(np.exp(value)))


def _turns(theta: FloatArray, tenants: FloatArray) -> FloatArray:
    return np.asarray(theta[0] + np.log(tenants) + theta[1] * (tenants > 1), dtype=np.float64)


def _turns_slopes(theta: FloatArray, tenants: FloatArray) -> FloatArray:
    return np.stack([np.ones_like(tenants), (tenants > 1).astype(np.float64)], axis=1)


def _turns_start(tenants: FloatArray, logs: FloatArray) -> FloatArray:
    turn = logs - np.log(tenants)
    one = turn[tenants == 1].mean()
    several = turn[tenants > 1]
    return np.array([one, several.mean() - one if several.size else 0.0])


def _contention(theta: FloatArray, tenants: FloatArray) -> FloatArray:
    return np.asarray(theta[0] + np.log1p(theta[1] * (tenants - 1.0)), dtype=np.float64)


def _contention_slopes(theta: FloatArray, tenants: FloatArray) -> FloatArray:
    others = tenants - 1.0
    return np.stack([np.ones_like(tenants), others / (1.0 + theta[1] * others)], axis=1)


def _contention_start(tenants: FloatArray, logs: FloatArray) -> FloatArray:
    """Solve both ends exactly: L(b)/L(a) = (1 + sigma (b-1)) / (1 + sigma (a-1))."""
    first, last = int(np.argmin(tenants)), int(np.argmax(tenants))
    growth = float(np.exp(min(logs[last] - logs[first], 50.0)))
    denominator = (tenants[last] - 1.0) - growth * (tenants[first] - 1.0)
    sigma = (growth - 1.0) / denominator if denominator > 0.0 else LARGEST_CONTENTION
    sigma = min(max(sigma, 0.0), LARGEST_CONTENTION)
    return np.array([logs[first] - np.log1p(sigma * (tenants[first] - 1.0)), sigma])


def _partition(theta: FloatArray, tenants: FloatArray) -> FloatArray:
    return np.full_like(tenants, theta[0])


def _partition_slopes(theta: FloatArray, tenants: FloatArray) -> FloatArray:
    return np.ones((tenants.size, 1))


def _partition_start(tenants: FloatArray, logs: FloatArray) -> FloatArray:
    return np.array([logs.mean()])


TURNS = Form(
    "turns",
    "L(1) = L1; L(N) = N x L1 x (1 + loss) from 2 tenants on",
    "the device serves one tenant at a time, and switching between them costs a constant fraction",
    (ONE_TENANT, LOSS),
    _turns,
    _turns_slopes,
    _turns_start,
)
CONTENDED = Form(
    "contention",
    "L(N) = L1 x (1 + contention x (N - 1)); all tenants together saturate at 1 / (L1 x contention)",
    "tenants run side by side, and each additional one slows the others by the share of the device they all need",
    (ONE_TENANT, CONTENTION),
    _contention,
    _contention_slopes,
    _contention_start,
)
PARTITION = Form(
    "partition",
    "L(N) = L, independent of the other tenants",
    "each tenant has its own partition",
    (SLICE,),
    _partition,
    _partition_slopes,
    _partition_start,
)
FORMS: dict[str, Form] = {form.name: form for form in (TURNS, CONTENDED, PARTITION)}
