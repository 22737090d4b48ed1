"""How many CPUs a process may use, in every shape of cgroup tree and for real."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gputax.worker.probes.limits import (
    TOLD_VARIABLE,
    CpuAllowance,
    cpu_allowance,
    quota_of_process,
    throttling_levels,
)

Plant = Callable[[dict[str, str]], Path]
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 none rw,nsdelegate\n"
UNIFIED = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"


def v1(mount_root: str = "/", point: str = "/sys/fs/cgroup/cpu", controllers: str = "cpu") -> str:
    return f"32 31 0:29 {mount_root} {point} rw,relatime shared:9 - cgroup cgroup rw,{controllers}\n"


def quota_v1(directory: str, quota: int, period: int = 100000) -> dict[str, str]:
    return {f"{directory}/cpu.cfs_quota_us": f"{quota}\n", f"{directory}/cpu.cfs_period_us": f"{period}\n"}


CG = "sys/fs/cgroup"
# name -> (files of the fake root, quota, the file that must be named)
TREES: dict[str, tuple[dict[str, str], float | None, str]] = {
    "v2 in a namespace": (
        {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": V2, f"{CG}/cpu.max": "50000 100000\n"},
        0.5,
        f"{CG}/cpu.max",
    ),
    "v2, the parent is tighter": (
        {
            "proc/self/cgroup": "0::/a.slice/b.scope\n",
            "proc/self/mountinfo": V2,
            f"{CG}/a.slice/cpu.max": "150000 100000\n",
            f"{CG}/a.slice/b.scope/cpu.max": "400000 100000\n",
        },
        1.5,
        f"{CG}/a.slice/cpu.max",
    ),
    "v2 without a quota": (
        {"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": V2, f"{CG}/a/cpu.max": "max 100000\n"},
        None,
        "",
    ),
    "v1, own group": (
        {
            "proc/self/cgroup": "4:memory:/m\n1:cpu:/job\n",
            "proc/self/mountinfo": v1(),
            **quota_v1(f"{CG}/cpu/job", 25000, 50000),
            **quota_v1(f"{CG}/cpu", -1),
        },
        0.5,
        f"{CG}/cpu/job/cpu.cfs_quota_us",
    ),
    "v1, the pod above the container": (
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/kubepods/pod1/c1\n",
            "proc/self/mountinfo": v1(point="/sys/fs/cgroup/cpu,cpuacct", controllers="cpu,cpuacct"),
            **quota_v1(f"{CG}/cpu,cpuacct/kubepods/pod1/c1", -1),
            **quota_v1(f"{CG}/cpu,cpuacct/kubepods/pod1", 200000),
        },
        2.0,
        f"{CG}/cpu,cpuacct/kubepods/pod1/cpu.cfs_quota_us",
    ),
    "v1 in Docker without a cgroup namespace": (
        {
            "proc/self/cgroup": "1:cpu:/docker/abc\n",
            "proc/self/mountinfo": v1("/docker/abc"),
            **quota_v1(f"{CG}/cpu", 300000),
        },
        3.0,
        f"{CG}/cpu/cpu.cfs_quota_us",
    ),
    "v1, our path is not visible": (
        {
            "proc/self/cgroup": "1:cpu:/kubepods/besteffort/x\n",
            "proc/self/mountinfo": v1(),
            **quota_v1(f"{CG}/cpu", 100000),
        },
        1.0,
        f"{CG}/cpu/cpu.cfs_quota_us",
    ),
    "v2, moved out of the namespace": (
        {"proc/self/cgroup": "0::/../other\n", "proc/self/mountinfo": V2, f"{CG}/cpu.max": "250000 100000"},
        2.5,
        f"{CG}/cpu.max",
    ),
    "v2, what lies outside the namespace is not ours to read": (
        {
            "proc/self/cgroup": "0::/../other\n",
            "proc/self/mountinfo": V2,
            f"{CG}/cpu.max": "max 100000",
            "sys/fs/other/cpu.max": "10000 100000",
        },
        None,
        "",
    ),
    "hybrid: v1 has the controller, v2 only the tree": (
        {
            "proc/self/cgroup": "1:cpu:/job\n0::/job\n",
            "proc/self/mountinfo": v1() + UNIFIED,
            f"{CG}/unified/job/cgroup.procs": "",
            **quota_v1(f"{CG}/cpu/job", 70000),
        },
        0.7,
        f"{CG}/cpu/job/cpu.cfs_quota_us",
    ),
    "mounted twice: the mount that shows us counts": (
        {
            "proc/self/cgroup": "1:cpu:/docker/abc/job\n",
            "proc/self/mountinfo": v1("/elsewhere", "/mnt/cpu") + v1("/docker/abc"),
            **quota_v1("mnt/cpu", 10000),
            **quota_v1(f"{CG}/cpu/job", 400000),
        },
        4.0,
        f"{CG}/cpu/job/cpu.cfs_quota_us",
    ),
    "a blank in the mount point": (
        {
            "proc/self/cgroup": "1:cpu:/\n",
            "proc/self/mountinfo": v1(point=r"/my\040groups"),
            **quota_v1("my groups", 100000),
        },
        1.0,
        "my groups/cpu.cfs_quota_us",
    ),
    "mountinfo is hidden": (
        {
            "proc/self/cgroup": "0::/\n",
            f"{CG}/cgroup.controllers": "cpu",
            f"{CG}/cpu.max": "120000 100000",
        },
        1.2,
        f"{CG}/cpu.max",
    ),
    "mountinfo is hidden, v1": (
        {"proc/self/cgroup": "1:cpu:/\n", **quota_v1(f"{CG}/cpu", 130000)},
        1.3,
        f"{CG}/cpu/cpu.cfs_quota_us",
    ),
    "a quota without its period": (
        {
            "proc/self/cgroup": "1:cpu:/\n",
            "proc/self/mountinfo": v1(),
            f"{CG}/cpu/cpu.cfs_quota_us": "50000",
        },
        None,
        "",
    ),
    "no cgroups": ({}, None, ""),
    "nonsense in the files": (
        {
            "proc/self/cgroup": "?\n\n::\n",
            "proc/self/mountinfo": V2 + "x\n - \n",
            f"{CG}/cpu.max": "lots of\n",
        },
        None,
        "",
    ),
    "a period of zero": (
        {
            "proc/self/cgroup": "1:cpu:/\n",
            "proc/self/mountinfo": v1(),
            **quota_v1(f"{CG}/cpu", 100000, 0),
        },
        None,
        "",
    ),
}


@pytest.mark.parametrize("name", TREES)
def test_the_tightest_quota_is_found_in(name: str, plant: Plant) -> None:
    files, quota, source = TREES[name]
    root = plant(files)
    found = cpu_allowance(root, affinity=range(8))
    assert found.quota_cpus == quota
    assert found.quota_source == (str(root / source) if source else "")


@pytest.mark.parametrize(
    ("cpus", "quota", "threads"),
    [
        (8, None, 8),
        (8, 0.5, 1),
        (8, 1.0, 1),
        (8, 1.9, 1),
        (8, 2.0, 2),
        (8, 64.0, 8),
        (1, None, 1),
        (1, 4.0, 1),
    ],
)
def test_threads_are_what_can_run_all_the_time(cpus: int, quota: float | None, threads: int) -> None:
    assert CpuAllowance(tuple(range(cpus)), quota, "").threads == threads


def test_throttling_is_watched_at_our_own_level_and_at_each_parent_with_a_quota(plant: Plant) -> None:
    files = {
        "proc/self/cgroup": "0::/a/b/c\n",
        "proc/self/mountinfo": V2,
        f"{CG}/a/cpu.max": "max 100000",
        f"{CG}/a/b/cpu.max": "100000 100000",
        f"{CG}/a/b/c/cpu.max": "max 100000",
    }
    root = plant(files)
    assert throttling_levels(root) == (root / CG / "a/b/c", root / CG / "a/b")


def test_this_process_is_described_as_the_kernel_does() -> None:
    found = cpu_allowance()
    assert set(found.affinity) == os.sched_getaffinity(0)
    assert json.loads(json.dumps(found.to_dict()))["threads"] == found.threads


@pytest.mark.parametrize(
    ("told", "threads"), [("2", 2), ("2.5", 2), ("0.5", 1), ("64", 8), ("", 8), ("many", 8), ("-1", 8), ("inf", 8)]
)
def test_what_a_sandbox_hides_is_told(tmp_path: Path, told: str, threads: int) -> None:
    allowance = cpu_allowance(tmp_path, range(8), {TOLD_VARIABLE: told})
    assert (allowance.threads, allowance.quota_cpus) == (threads, None)


def test_what_is_seen_counts_more_than_what_is_told(plant: Plant) -> None:
    files, quota, _ = TREES["v1, own group"]
    allowance = cpu_allowance(plant(files), range(8), {TOLD_VARIABLE: "4"})
    assert (allowance.quota_cpus, allowance.threads) == (quota, 1)


def test_the_quota_of_another_process_is_read_from_outside(plant: Plant) -> None:
    files, quota, _ = TREES["v1, own group"]
    others = {"proc/77/cgroup": files["proc/self/cgroup"], "proc/self/cgroup": "1:cpu:/\n"}
    root = plant({**files, **others})
    assert quota_of_process(77, root) == quota
    assert cpu_allowance(root, range(8), {}).quota_cpus is None
