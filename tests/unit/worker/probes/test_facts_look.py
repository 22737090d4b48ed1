"""The look at the machine before a measurement: what it finds in counters made by hand, and what it says."""

from __future__ import annotations

import pytest

from gputax.worker.probes.disturbance import CELL_LIMITS, Limits
from gputax.worker.probes.facts import Look, Process, busiest, look
from tests.unit.worker.probes.conftest import PlantTree

CALM = Look(1.0, 2, steal_percent=2.0, others_percent_of_core=12.0, swapped_mb_per_s=0.0, governors=("performance",))


def stat(pid: int, name: str, utime: int, stime: int) -> str:
    return f"{pid} ({name}) R 1 1 1 0 -1 0 0 0 0 0 {utime} {stime} 0 0 20 0 1 0 100 0 0\n"


def cpu(user: int, idle: int, steal: int) -> str:
    return "".join(f"{name} {user} 0 0 {idle} 0 0 0 {steal} 0 0\n" for name in ("cpu", "cpu0", "cpu1"))


def test_a_look_reads_the_counters_at_both_ends(plant: PlantTree, monkeypatch: pytest.MonkeyPatch) -> None:
    root = plant(
        {
            "proc/stat": cpu(100, 100, 0),
            "proc/loadavg": "0 0 0 1/1 1\n",
            "proc/41/stat": stat(41, "a (b) c", 10, 5),
            "proc/42/stat": stat(42, "idle", 7, 0),
            "proc/vmstat": "pgpgin 4\npswpin 100\npswpout 1\n",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
        }
    )

    def a_second(_: float) -> None:
        plant(
            {
                "proc/stat": cpu(190, 100, 8),
                "proc/41/stat": stat(41, "a (b) c", 60, 25),
                "proc/43/stat": stat(43, "new", 30, 0),
                "proc/vmstat": "pgpgin 4\npswpin 1124\npswpout 1\n",
            }
        )

    monkeypatch.setattr("gputax.worker.probes.facts.time.sleep", a_second)
    monkeypatch.setattr("gputax.worker.probes.telemetry.current_affinity", lambda _: {0, 1})
    seen = look(1.0, root)
    assert [(each.pid, each.name) for each in seen.busiest] == [(41, "a (b) c"), (43, "new")]
    assert seen.steal_percent is not None
    assert seen.steal_percent > CELL_LIMITS.steal_percent
    assert seen.others_percent_of_core is not None
    assert seen.others_percent_of_core > 100.0
    assert seen.swapped_mb_per_s is not None
    assert seen.swapped_mb_per_s > 1.0
    assert seen.governors == ("powersave",)
    assert Look.from_dict(seen.to_dict()) == seen


def test_the_busiest_are_others_by_their_share_of_a_core() -> None:
    before = {1: ("coordinator", 0), 2: ("a", 100), 3: ("b", 0), 4: ("c", 0)}
    after = {1: ("coordinator", 90), 2: ("a", 149), 3: ("b", 4), 5: ("young", 6)}
    assert busiest(before, after, 0.5, ours=(1,), ticks_per_s=100) == (
        Process(2, "a", 98.0),
        Process(5, "young", 12.0),
        Process(3, "b", 8.0),
    )


def test_a_virtual_machine_as_it_usually_is_gives_no_trouble() -> None:
    assert CALM.troubles(CELL_LIMITS) == ()
    assert [each.text for each in CALM.troubles(Limits())] == [
        "other processes use 12 % of a core",
        "the hypervisor withholds 2.0 % of the CPU time",
    ]


def test_troubles_name_the_busiest_and_a_governor_does_not_pass() -> None:
    seen = Look(1.0, 2, 7.25, 143.0, 12.0, ("powersave",), (Process(9, "python3", 98.0), Process(10, "node", 45.0)))
    assert [(each.text, each.passes) for each in seen.troubles(CELL_LIMITS)] == [
        ("other processes use 143 % of a core (python3 98 %, node 45 %)", True),
        ("the hypervisor withholds 7.2 % of the CPU time", True),
        ("the machine swaps 12 MB/s", True),
        ("the CPU governor is powersave", False),
    ]


def test_a_look_of_a_worker_that_knows_less_is_read() -> None:
    assert Look.from_dict({"seconds": 1.0, "steal_percent": 0.5, "others_percent_of_core": None}) == Look(1.0, 1, 0.5)
