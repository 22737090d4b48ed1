"""Numbers with units, as people write them."""

from __future__ import annotations

import math

import pytest

from gputax.results.importers.quantities import parse_number, quantities, unit_of


@pytest.mark.parametrize(
    ("text", "value", "last_digit"),
    [
        ("6,977", 6977, 1), ("6977", 6977, 1), ("1,234,567.5", 1234567.5, 0.1), ("1_000", 1000, 1), ("6'977", 6977, 1),
        ("6\u202f977", 6977, 1), ("0.14", 0.14, 0.01), ("0.140", 0.14, 0.001), ("1.2e3", 1200, 100), ("-5", -5, 1),
    ],
)  # fmt: skip
def test_numbers(text: str, value: float, last_digit: float) -> None:
    found, step = parse_number(text)
    assert found == pytest.approx(value)
    assert step == pytest.approx(last_digit)


@pytest.mark.parametrize("text", ["0,14", "12,34", "1,2345", "1.2.3", "1_0", "6,977_000"])
def test_a_number_that_may_mean_another_is_not_read(text: str) -> None:
    assert parse_number(text)[0] is None


def test_nan_and_infinity_are_seen_as_such() -> None:
    assert math.isnan(parse_number("nan")[0] or 0)
    assert parse_number("1e999")[0] == math.inf


@pytest.mark.parametrize(
    ("text", "kind", "factor"),
    [
        ("ms", "time", 1), ("µs", "time", 1e-3), ("μs", "time", 1e-3), ("us", "time", 1e-3), ("ns", "time", 1e-6),
        ("microseconds", "time", 1e-3), ("s", "time", 1e3), ("Seconds", "time", 1e3), ("ops/sec", "rate", 1),
        ("samples per second", "rate", 1), ("images / s", "rate", 1), ("qps", "rate", 1), ("GB/s", "bandwidth", 1),
        ("MB/sec", "bandwidth", 1e-3), ("GiB/s", "bandwidth", 1.073741824),
        ("MiB/s", "bandwidth", 1.048576e-3), ("TB/s", "bandwidth", 1e3),
    ],
)  # fmt: skip
def test_units(text: str, kind: str, factor: float) -> None:
    unit = unit_of(text)
    assert unit is not None
    assert (unit.kind, unit.factor) == (kind, pytest.approx(factor))


@pytest.mark.parametrize("text", ["", "Gb/s", "gb/s", "Gbps", "%", "watts", "ops", "furlongs/s"])
def test_units_that_are_not_ours(text: str) -> None:
    assert unit_of(text) is None


def test_what_a_rate_counts_is_kept() -> None:
    counted = [unit_of(text) for text in ("img/s", "inferences/sec", "ops/sec", "queries/s", "tokens/s")]
    assert [unit.counted for unit in counted if unit] == ["samples", "samples", "operations", "queries", "tokens"]


def test_a_line_with_several() -> None:
    found = list(quantities("4.31 GB/s (H2D), 4.53 GB/s (D2H)"))
    assert [(each.value, each.unit_text) for each in found] == [(4.31, "GB/s"), (4.53, "GB/s")]
    assert [each.text for each in quantities("p99 of run-7: 0.198ms.")] == ["7", "0.198"]
    assert [(each.text, each.unit_text) for each in quantities("6,977, and more")] == [("6,977", "")]
