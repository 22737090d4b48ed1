"""Amounts as Kubernetes writes them."""

from __future__ import annotations

import pytest

from gputax.kubernetes.quantity import quantity


@pytest.mark.parametrize(("text", "number"), [("2", 2.0), ("100m", 0.1), ("4Gi", 2**32), ("1k", 1000.0), ("0", 0.0)])
def test_quantities(text: str, number: float) -> None:
    assert quantity(text) == pytest.approx(number)
