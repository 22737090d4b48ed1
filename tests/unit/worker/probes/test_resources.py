"""What a loaded worker got from its host, read from faked files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gputax.worker.probes.resources import (
    cpu_mhz,
    cpu_nodes,
    cpu_weight,
    huge_pages,
    numbers,
    read_mb,
    remote_memory_share,
    resource_facts,
)

Plant = Callable[[dict[str, str]], Path]
TWO_NODES = {
    "sys/devices/system/node/node0/cpulist": "0-3\n",
    "sys/devices/system/node/node1/cpulist": "4-7\n",
    "proc/self/numa_maps": "7f00 default anon=100 N0=75 N1=25\n7f80 default file=/lib N0=25\n",
}


def test_the_smallest_weight_of_the_groups_counts_and_the_root_does_not(plant: Plant) -> None:
    root = plant({
        "proc/self/cgroup": "0::/pod/box\n",
        "proc/self/mountinfo": "1 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
        "sys/fs/cgroup/cpu.weight": "1\n",
        "sys/fs/cgroup/pod/cpu.weight": "50\n",
        "sys/fs/cgroup/pod/box/cpu.weight": "200\n",
    })  # fmt: skip
    assert cpu_weight(root) == 0.5


def test_memory_on_another_node_is_a_share_of_all_pages(plant: Plant) -> None:
    root = plant(TWO_NODES)
    assert cpu_nodes(root, [0, 1]) == [0]
    assert remote_memory_share(root, [0]) == pytest.approx(0.2)
    assert remote_memory_share(root, [0, 1]) == 0.0


def test_one_node_has_no_other(plant: Plant) -> None:
    assert remote_memory_share(plant({"sys/devices/system/node/node0/cpulist": "0-3\n"}), [0]) is None


def test_huge_pages_are_a_share_of_anonymous_memory(plant: Plant) -> None:
    root = plant({
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "proc/self/smaps_rollup": "Rss: 900 kB\nAnonymous:   800 kB\nAnonHugePages:  200 kB\n",
    })  # fmt: skip
    found = huge_pages(root)
    assert (found["huge_pages"], found["huge_share"]) == ("madvise", 0.25)


def test_the_clock_is_that_of_our_cpus(plant: Plant) -> None:
    lines = "processor\t: 0\ncpu MHz\t\t: 1000.0\n\nprocessor\t: 1\ncpu MHz\t\t: 3000.0\n"
    root = plant({"proc/cpuinfo": lines})
    assert (cpu_mhz(root, [1]), cpu_mhz(root, [0, 1]), cpu_mhz(root, [7])) == (3000.0, 2000.0, None)
    plant({"sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "2500000\n"})
    assert cpu_mhz(root, [1]) == 2500.0, "cpufreq knows better"


def test_what_came_from_storage(plant: Plant) -> None:
    assert read_mb(plant({"proc/self/io": "rchar: 9\nread_bytes: 2097152\n"})) == 2.0
    assert read_mb(plant({}) / "nowhere") is None


def test_lists_of_the_kernel() -> None:
    assert numbers("0-2,8") == {0, 1, 2, 8}
    assert numbers("") == set()


def test_this_process_has_facts_and_unknown_ones_are_none(plant: Plant) -> None:
    real = resource_facts()
    assert real["cpus"]
    assert real["running_threads"] >= 1
    assert real["policy"] == "other"
    bare = resource_facts(plant({}) / "nowhere", [0])
    assert (bare["cpu_weight"], bare["cpu_mhz"], bare["huge_share"], bare["running_threads"]) == (
        None,
        None,
        None,
        None,
    )
