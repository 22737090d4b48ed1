"""The figure of a measured program, from a few pairs."""

from __future__ import annotations

from bench import program


def test_the_overhead_is_small_against_the_process_itself() -> None:
    found = program.command_overhead(pairs=5)
    assert found["duet_command_plain_us"] > 50
    low, high = found["duet_command_overhead_us_ci95"]
    assert low <= found["duet_command_overhead_us"] <= high
    assert abs(found["duet_command_overhead_us"]) < 20 * found["duet_command_plain_us"]
