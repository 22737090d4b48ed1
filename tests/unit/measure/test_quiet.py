"""Waiting for a quiet machine, in virtual time; and a run's cell that was not quiet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from gputax.errors import PreflightError
from gputax.measure import quiet
from gputax.measure.quiet import await_quiet, look_before
from gputax.measure.run.cell import Measured
from gputax.measure.session import Observation
from gputax.plan.cells import Cell, Load, Setup
from gputax.worker.probes.facts import Look, Process

QUIET = Look(1.0, 2, 0.5, 3.0)
BUSY = Look(1.0, 2, 0.5, 98.0, busiest=(Process(7, "ffmpeg", 97.0),))
POWERSAVE = Look(1.0, 2, 0.5, 3.0, governors=("powersave",))


class Machine:
    """Looks that take a second each, and a clock that only they and sleeping move."""

    def __init__(self, looks: Iterable[Look]) -> None:
        self._looks: Iterator[Look] = iter(looks)
        self.now_s = 0.0
        self.said: list[str] = []
        self.shown: list[str] = []

    def look(self) -> Look:
        self.now_s += 1.0
        return next(self._looks)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def wait(self, minutes: float) -> None:
        await_quiet(
            self.look, 60.0 * minutes, self.said.append, self.shown.append, clock=lambda: self.now_s, sleep=self.sleep
        )


def forever(look: Look) -> Iterator[Look]:
    while True:
        yield look


def test_without_a_wait_it_goes_on_after_a_second_with_one_line() -> None:
    machine = Machine([BUSY])
    machine.wait(0)
    assert machine.now_s == 1.0
    assert machine.said == ["warning: not quiet: other processes use 98 % of a core (ffmpeg 97 %)"]
    assert machine.shown == []


@pytest.mark.parametrize("minutes", [0.0, 5.0])
def test_a_quiet_machine_is_not_worth_a_word(minutes: float) -> None:
    machine = Machine([QUIET])
    machine.wait(minutes)
    assert (machine.now_s, machine.said, machine.shown) == (1.0, [], [])


def test_it_goes_on_once_the_machine_stays_quiet() -> None:
    machine = Machine([BUSY, BUSY, QUIET, BUSY, QUIET, QUIET, QUIET])
    machine.wait(5)
    assert machine.now_s == 1.0 + 6 * 5.0
    assert machine.said == []
    assert machine.shown[0].startswith("waiting for a quiet machine, 5 min left: other processes use 98 %")


def test_after_the_wait_it_stops_and_names_the_busiest() -> None:
    machine = Machine(forever(BUSY))
    with pytest.raises(PreflightError) as stopped:
        machine.wait(2)
    assert 120.0 <= machine.now_s <= 127.0
    assert "not quiet within 2 min: other processes use 98 % of a core (ffmpeg 97 %)" in stopped.value.what
    assert "--accept-disturbed" in stopped.value.next_step
    assert stopped.value.exit_code == 3


def test_waiting_does_not_change_a_governor() -> None:
    machine = Machine([POWERSAVE])
    machine.wait(5)
    assert machine.now_s == 1.0
    assert machine.said == ["warning: not quiet: the CPU governor is powersave"]


@pytest.mark.parametrize(("environment", "disturbed"), [("bare", True), ("bare+proxy", False)])
def test_a_cell_beside_others_is_disturbed_but_not_by_its_own_proxy(environment: str, disturbed: bool) -> None:
    telemetry: dict[str, Any] = {"time_ns": [0, 10**10], "allowed_cpus": [2, 2], "others_ms": [0.0, 9000.0]}
    observation = Observation(Load("saturate"), {}, {}, (), telemetry, 10.0)
    unused: Any = None
    measured = Measured(Cell(Setup("resnet50"), "offline", 1, environment), observation, unused, None, 0.0, None, ())
    assert bool(measured.disturbed) is disturbed


def test_a_far_machine_is_not_looked_at_unless_the_user_waits() -> None:
    said: list[str] = []
    look_before(("ssh:nowhere", "k8s"), 0.0, said.append, said.append)
    assert said == []


def test_two_environments_of_this_machine_are_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    monkeypatch.setattr(quiet, "await_quiet", lambda look_now, wait_s, say, show: looks.append(wait_s))
    look_before(("bare", "bare+proxy"), 0.0, print, print)
    assert looks == [0.0]
