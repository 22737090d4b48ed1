"""Lines that are latencies, and the name of a program of the user's."""

from __future__ import annotations

import json

import pytest

from gputax.errors import UsageError
from gputax.plan.cells import Setup
from gputax.plan.driver import driver_choice
from gputax.plan.own_model import is_own
from gputax.plan.own_program import NoUnit, OwnProgram, latency_ns
from gputax.plan.suites import load_plan


@pytest.mark.parametrize(
    ("line", "unit", "expected"),
    [
        ("12.5ms", "", 12_500_000),
        ("450 us", "", 450_000),
        ("450 µs", "", 450_000),
        (" 0.0123 s\r", "", 12_300_000),
        ("7ns", "", 7),
        ("1.5e-3", "s", 1_500_000),
        ("12.5", "ms", 12_500_000),
        ("12.5us", "ms", 12_500),  # what the line says wins
        (".5", "ms", 500_000),
        ("0", "ms", None),
        ("-3ms", "", None),
        ("nan", "ms", None),
        ("1e999", "s", None),
        ("100000 s", "", None),
        ("latency 12 ms", "ms", None),
        ("12 ms 13 ms", "ms", None),
        ("12 MB", "ms", None),
        ("", "ms", None),
    ],
)
def test_a_line(line: str, unit: str, expected: int | None) -> None:
    assert latency_ns(line, unit) == expected


def test_a_number_without_a_unit_is_not_guessed() -> None:
    with pytest.raises(NoUnit):
        latency_ns("12.5")


def test_the_name_has_the_words_and_tells_commands_apart() -> None:
    one, other = (OwnProgram(("python3", "/a/b/bench.py", count)) for count in ("1", "2"))
    assert one.name.startswith("python3_bench.py_1@")
    assert is_own(one.name)
    assert one.name != other.name
    assert OwnProgram(("bench.py", "1")).name != OwnProgram(("bench.py 1",)).name


def test_a_setup_travels_as_json() -> None:
    setup = Setup("x", program=OwnProgram(("a", "b c"), "ms"))
    assert Setup.from_dict(json.loads(json.dumps(setup.to_dict()))) == setup


def test_the_plan_is_one_cell_without_loadgen() -> None:
    (cell,) = load_plan(program=OwnProgram(("true",), by_process=True), threads=2)
    assert (cell.scenario, cell.batch_size, cell.setup.engine, cell.setup.threads) == ("saturate", 1, "program", 2)
    assert cell.load.min_samples >= 64
    with pytest.raises(UsageError, match="it has no scenario server"):
        load_plan(program=OwnProgram(("true",)), scenarios=("server",))
    with pytest.raises(UsageError, match="chooses its device itself"):
        load_plan(program=OwnProgram(("true",)), device="cpu")


@pytest.mark.parametrize(("device", "needed"), [("auto", False), ("software", True), ("cuda", True)])
def test_a_driver_is_led_to_only_where_one_was_asked_for(device: str, needed: bool) -> None:
    setup = Setup("x", engine="program", device=device, program=OwnProgram(("true",)))
    assert driver_choice(setup).needed is needed
