"""Control groups with a quota, in a fake tree of either version: what is written, refused, removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gputax.errors import PreflightError
from gputax.sharing import cpu_quota
from gputax.sharing.cpu_quota import PREFIX, QuotaGroups, quota_of, remove_leftovers

FILES = {
    1: ("cgroup.procs", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares", "cpu.stat"),
    2: ("cgroup.procs", "cpu.max", "cpu.weight", "cpu.stat", "cgroup.subtree_control", "cgroup.controllers"),
}
PROC = {
    1: ("3:cpu:/job\n0::/\n", "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"),
    2: ("0::/job\n", "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
}
OWN = {1: "sys/fs/cgroup/cpu/job", 2: "sys/fs/cgroup/job"}


class Kernel:
    """Plays the kernel: a new group has its files at once, a group that goes takes them along."""

    def __init__(self, root: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.version = root, version
        self.own = root / OWN[version]
        cgroup, mountinfo = PROC[version]
        for name, text in (("cgroup", cgroup), ("mountinfo", mountinfo)):
            path = root / "proc/self" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.own.parent.mkdir(parents=True)
        self.make(self.own)
        monkeypatch.setattr(cpu_quota, "_make", self.make)
        monkeypatch.setattr(cpu_quota, "_remove_now", self.remove)
        monkeypatch.setattr(cpu_quota, "REMOVE_TRIES", 2)

    def make(self, path: Path) -> None:
        path.mkdir(exist_ok=True)
        for name in FILES[self.version]:
            (path / name).touch()
        if self.version == 2:
            (path / "cgroup.controllers").write_text("cpu memory")

    def remove(self, path: Path) -> None:
        if any(child.is_dir() for child in path.iterdir()):
            raise OSError(16, "Device or resource busy")
        for file in path.iterdir():
            file.unlink()
        path.rmdir()

    def groups_left(self) -> list[str]:
        return [path.name for path in self.own.rglob(f"{PREFIX}*")]


@pytest.fixture(params=[1, 2])
def kernel(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel(tmp_path, request.param, monkeypatch)
    if request.param == 2:
        (kernel.own / "cgroup.subtree_control").write_text("cpu")
    return kernel


class TestQuota:
    def test_is_short_so_that_it_shows_as_a_slower_cpu_and_not_as_stalls(self) -> None:
        assert (quota_of(2 / 7).quota_us, quota_of(2 / 7).period_us) == (2857, 10_000)

    def test_takes_a_longer_period_where_the_kernel_would_refuse_the_quota(self) -> None:
        assert (quota_of(0.05).quota_us, quota_of(0.05).period_us) == (5000, 100_000)
        assert quota_of(0.0005).quota_us >= 1000


class TestGroups:
    def test_a_tenant_gets_a_group_with_its_quota(self, kernel: Kernel) -> None:
        groups = QuotaGroups(kernel.root)
        group = groups.group("t1", quota_of(2 / 7))
        group.add(4711)
        assert groups.version == kernel.version
        assert group.effective_cpus() == pytest.approx(0.2857)
        assert group.members() == {4711}
        assert group.path.parent == groups.path
        groups.close()
        assert kernel.groups_left() == []
        groups.close()

    def test_each_tenant_weighs_what_a_process_without_a_group_does(self, kernel: Kernel) -> None:
        ordinary = {1: 1024, 2: 100}[kernel.version]
        groups = QuotaGroups(kernel.root)
        assert groups.weight() == ordinary
        groups.weigh(7)
        assert groups.weight() == 7 * ordinary
        groups.weigh(512)
        assert groups.weight() == {1: 262_144, 2: 10_000}[kernel.version], "the most that the kernel takes"
        groups.close()

    def test_a_group_keeps_its_place_when_the_quota_changes(self, kernel: Kernel) -> None:
        groups = QuotaGroups(kernel.root)
        groups.group("t1", quota_of(0.5))
        assert groups.group("t1", quota_of(0.25)).effective_cpus() == pytest.approx(0.25)
        groups.close()

    def test_the_kernels_counters_are_read(self, kernel: Kernel) -> None:
        groups = QuotaGroups(kernel.root)
        group = groups.group("t1", quota_of(0.5))
        assert (group.throttling().periods, group.throttling().throttled) == (0, 0)
        (group.path / "cpu.stat").write_text("nr_periods 9\nnr_throttled 4\nthrottled_time 12\n")
        assert (group.throttling().periods, group.throttling().throttled) == (9, 4)
        groups.close()

    def test_the_groups_of_a_killed_run_are_removed_and_those_of_a_living_one_stay(self, kernel: Kernel) -> None:
        dead = kernel.own / f"{PREFIX}123-abcd"
        kernel.make(dead)
        kernel.make(dead / "t1")
        living = QuotaGroups(kernel.root)
        assert not dead.exists()
        other = QuotaGroups(kernel.root)
        assert living.path.is_dir()
        assert remove_leftovers(kernel.own) == []
        living.close()
        other.close()
        assert kernel.groups_left() == []


def test_without_permission_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(tmp_path, 1, monkeypatch)

    def refused(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cpu_quota, "_make", refused)
    with pytest.raises(PreflightError, match="Permission denied") as raised:
        QuotaGroups(kernel.root)
    assert "Delegate=yes" in raised.value.next_step
    assert "cpu-shared" in raised.value.next_step


def test_a_directory_that_is_no_control_group_is_refused_and_left_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(tmp_path, 1, monkeypatch)
    monkeypatch.setattr(cpu_quota, "_make", lambda path: path.mkdir(exist_ok=True))  # no files appear in it
    with pytest.raises(PreflightError):
        QuotaGroups(kernel.root)
    assert kernel.groups_left() == []


def test_a_machine_without_a_cpu_controller_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(tmp_path, 2, monkeypatch)
    (kernel.own / "cgroup.controllers").write_text("memory pids")
    with pytest.raises(PreflightError, match="no control group with a cpu controller"):
        QuotaGroups(kernel.root)


class TestDelegatedScope:
    """cgroup v2: a group with processes in it may not hand its controllers on."""

    def test_the_coordinator_moves_into_a_leaf_while_it_measures_and_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kernel = Kernel(tmp_path, 2, monkeypatch)
        (kernel.own / "cgroup.procs").write_text(f"{os.getpid()}\n")
        groups = QuotaGroups(kernel.root)
        leaf = kernel.own / "gputax-coordinator"
        assert (leaf / "cgroup.procs").read_text() == str(os.getpid())
        assert (kernel.own / "cgroup.subtree_control").read_text() == "+cpu"
        groups.close()
        assert not leaf.exists()
        assert (kernel.own / "cgroup.subtree_control").read_text() == "-cpu"

    def test_a_group_that_others_live_in_is_left_as_it_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kernel = Kernel(tmp_path, 2, monkeypatch)
        (kernel.own / "cgroup.procs").write_text(f"1\n{os.getpid()}\n")
        (kernel.own / "cgroup.subtree_control").unlink()  # as if the kernel said no
        with pytest.raises(PreflightError):
            QuotaGroups(kernel.root)
        assert (kernel.own / "cgroup.procs").read_text() == f"1\n{os.getpid()}\n"
        assert not (kernel.own / "gputax-coordinator").exists()
