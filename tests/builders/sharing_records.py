"""Hand-made sharing experiments whose truth is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gputax.advise.models import Fitted, fit_or_refuse
from gputax.advise.table import Table
from gputax.results.documents.sharing import SharedCell, SharingRecord, TenantResult

CPU = "CPU (Test CPU), not a GPU"
STAMP = "2026-01-01T12:00:00+00:00"
SHARES: dict[str, float | None] = {"mig": 1 / 7, "cpu-quota": 1 / 7, "mps": 1.0, "time-slicing": 1.0, "cpu-shared": 1.0}
Latency = Callable[[int], float]


def turns(one_ms: float = 10.0, loss: float = 0.1) -> Latency:
    return lambda tenants: one_ms if tenants == 1 else tenants * one_ms * (1 + loss)


def contention(one_ms: float = 10.0, sigma: float = 0.4) -> Latency:
    return lambda tenants: one_ms * (1 + sigma * (tenants - 1))


def partition(slice_ms: float = 40.0) -> Latency:
    return lambda tenants: slice_ms


def cell(
    technique: str, tenants: int, repeat: int, mean_ms: float, *, tail: float | None = 1.5, **changes: Any
) -> SharedCell:
    """All tenants alike; their p99 is `tail` times the mean, or refused where that is None."""
    share = SHARES.get(technique, 1.0)
    results = tuple(
        TenantResult(
            tenant=number, entitlement="a share", entitlement_share=share, inferences=1000,
            throughput_per_s=1000 / mean_ms, mean_ms=mean_ms, p50_ms=0.98 * mean_ms, p90_ms=1.1 * mean_ms,
            p99_ms=None if tail is None else tail * mean_ms, samples_file="samples/x.parquet",
        )
        for number in range(1, tenants + 1)
    )  # fmt: skip
    values: dict[str, Any] = {
        "cell": f"{technique}-t{tenants}-r{repeat}", "technique": technique, "tenants": tenants, "repeat": repeat,
        "started_at": STAMP, "window_s": 10.0, "overlap_share": 0.97, "aggregate_per_s": tenants * 1000 / mean_ms,
        "jain": 1.0, "results": results, "valid": True,
    }  # fmt: skip
    return SharedCell(**{**values, **changes})


def cells(
    technique: str,
    latency: Latency,
    *,
    tenants: Sequence[int] = (1, 3, 5, 7),
    repeats: int = 5,
    noise: float = 0.01,
    tail: float | None = 1.5,
    tail_noise: float = 0.02,
    seed: int = 1,
) -> list[SharedCell]:
    """Repeats that scatter around the truth, in the logarithm."""
    rng = np.random.default_rng(seed)
    return [
        cell(
            technique,
            count,
            repeat,
            latency(count) * float(np.exp(rng.normal(0, noise))),
            tail=None if tail is None else tail * float(np.exp(rng.normal(0, tail_noise))),
        )
        for count in tenants
        for repeat in range(1, repeats + 1)
    ]


def record(*found: SharedCell, **changes: Any) -> SharingRecord:
    values: dict[str, Any] = {
        "gputax_version": "0.1.0", "timestamp": STAMP, "complete": True, "plan_id": "p", "plan": {"slices": 0},
        "place": "bare", "workload": "yolos-small", "device": "cpu", "device_label": CPU, "cells": found,
        "claim": "CPU number, not a GPU's",
    }  # fmt: skip
    return SharingRecord(**{**values, **changes})


def fit_all(source: SharingRecord | Table, only: Sequence[int] = ()) -> tuple[Fitted, ...]:
    """Fit every technique whose points suffice; `only` restricts the fit, and the other points then check it."""
    return tuple(each for each in fit_or_refuse(source, only) if isinstance(each, Fitted))
