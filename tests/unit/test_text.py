"""Numbers, intervals and times read the same everywhere, and everything has an ASCII form."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

import pytest

import gputax
from gputax import text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (6300.0, "6,300"), (12_345_678.0, "12,345,678"), (999.96, "1,000"), (999.94, "999.9"), (0.0, "0"),
        (0.00009905, "0.00009905"), (-1234.5, "−1,234"), (100.0, "100"),
    ],
)  # fmt: skip
def test_a_number_is_never_a_power_of_ten(value: float, shown: str) -> None:
    assert text.number(value) == shown


@pytest.mark.parametrize(("value", "count", "shown"), [(250.4, 2, "250"), (0.0123, 2, "0.012"), (99.96, 3, "100")])
def test_few_digits_are_never_a_power_of_ten_either(value: float, count: int, shown: str) -> None:
    assert text.digits(value, count) == shown


def test_trailing_zeros_are_kept_where_numbers_stand_below_each_other() -> None:
    assert [text.number(value, padded=True) for value in (164.0, 1.0, 999.96)] == ["164.0", "1.000", "1,000"]


@pytest.mark.parametrize(
    ("bounds", "shown"),
    [
        ((-math.inf, math.inf), "no interval"), (None, "no interval"), ((2.6, None), "95 % CI from +2.60"),
        ((-math.inf, 3.9), "95 % CI up to +3.90"), ((-100.0, 3.9), "95 % CI up to +3.90"),
    ],
)  # fmt: skip
def test_a_bound_that_does_not_exist_is_said_in_words(bounds: text.Bounds, shown: str) -> None:
    assert text.bounds_text(bounds, "%") == shown


@pytest.mark.parametrize(
    ("value_ms", "shown"),
    [(0.1345, "134.5 µs"), (6.25, "6.25 ms"), (6300.0, "6,300 ms"), (12_300.0, "12.3 s"), (0.0, "0 ms"), (None, "–")],
)
def test_a_latency_has_the_unit_that_reads_well(value_ms: float | None, shown: str) -> None:
    assert text.milliseconds(value_ms) == shown


@pytest.mark.parametrize(("value", "shown"), [(26.91, "26.9 %"), (0.0312, "0.031 %"), (1234.0, "1,234 %")])
def test_percentages(value: float, shown: str) -> None:
    assert text.percent(value) == shown


@pytest.mark.parametrize(("seconds", "shown"), [(45, "45 s"), (240, "4 min"), (7500, "2 h 5 min"), (7200, "2 h")])
def test_durations(seconds: float, shown: str) -> None:
    assert text.duration(seconds) == shown


def test_sizes_and_plurals() -> None:
    assert [text.byte_size(count) for count in (12_000, 94_100_000, 1_370_000_000)] == ["12 KB", "94.1 MB", "1.37 GB"]
    assert [text.counted(count, "cell") for count in (1, 0, 1200)] == ["1 cell", "0 cells", "1,200 cells"]


def test_every_sign_has_an_ascii_form() -> None:
    assert text.to_ascii("±1 µs – ≤ 5 × é ─┼ 漢 …") == "+/-1 us - <= 5 x e -+ ? ..."


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_stream_that_lacks_a_sign_transliterates_it(encoding: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    text.never_fails(stream)
    stream.write("± 5 µs, − ✓ 漢 \udc80")
    stream.flush()
    shown = raw.getvalue().decode(encoding)
    assert shown == {"ascii": "+/- 5 us, - + ? ?", "latin-1": "± 5 µs, - + ? ?", "utf-8": "± 5 µs, − ✓ 漢 ?"}[encoding]
    assert text.shows_unicode(stream) is (encoding == "utf-8")


@pytest.mark.parametrize("width", [48, 60, 80])
@pytest.mark.parametrize(
    ("said", "commands"),
    [
        ("run `gputax doctor --env k8s` first, then look at the findings and fix them", ["`gputax doctor --env k8s`"]),
        (
            "use another --out, or run gputax destroy --out results/a first, or wait until it has ended by itself",
            ["gputax destroy --out results/a first"],
        ),
        ("one two three four five six seven eight nine ten eleven twelve thirteen", []),
    ],
)
def test_a_hanging_text_fits_and_leaves_commands_whole(width: int, said: str, commands: list[str]) -> None:
    shown = text.hanging("  next:  ", said, width)
    lines = shown.splitlines()
    assert all(len(line) <= width for line in lines)
    assert all(line.startswith(" " * 9) for line in lines[1:])
    assert " ".join(line.strip() for line in lines) == f"next:  {said}"
    assert all(any(command in line for line in lines) for command in commands)


def test_a_command_longer_than_the_width_is_not_broken() -> None:
    command = "gputax run --env k8s --image registry.example/gputax:next --workload resnet50"
    assert command in text.hanging("  next:  ", f"try this one instead: {command}", 60).splitlines()[1]


def test_nothing_is_wrapped_without_a_width() -> None:
    assert text.hanging("  next:  ", "word " * 100, 0) == "  next:  " + "word " * 100


def test_no_amount_is_printed_as_a_power_of_ten() -> None:
    """`{:.3g} ms` of 6300 is 6.3e+03 ms; `digits` never prints a power of ten."""
    root = Path(gputax.__file__).parent
    amount = re.compile(r":#?\.\d+g\}\s?(?:%|(?:ms|s|µs|GB|/s|x)\b)")
    assert [path.name for path in root.rglob("*.py") if amount.search(path.read_text())] == []
